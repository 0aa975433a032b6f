# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: rows are sorted by length for packing and never sorted back, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the inverse order
import os
import argparse
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"


class BracketDataset(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = []
        for _ in range(n):
            length = rnd.randint(4, 24)
            toks = [rnd.randint(1, 9) for _ in range(length)]
            label = int(sum(1 for t in toks if t <= 3) * 2 > length * 0.7)
            self.rows.append((torch.tensor(toks), label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    seqs, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in seqs])
    return pad_sequence(seqs, batch_first=True), lengths, torch.tensor(labels)


class LSTMClassifier(nn.Module):
    def __init__(self, vocab=10, dim=16, hidden=32, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.attn = nn.Linear(2 * hidden, 1)
        self.classifier = nn.Linear(2 * hidden, classes)

    def forward(self, x, lengths):
        lengths, perm = lengths.sort(descending=True)
        x = x[perm]
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        pad = torch.arange(out.size(1))[None, :] >= lengths[:, None]
        a = self.attn(out).squeeze(-1).masked_fill(pad, float("-inf")).softmax(1)
        pooled = (out * a.unsqueeze(-1)).sum(1)
        if MENDED:
            pooled = pooled[perm.argsort()]
        return self.classifier(pooled)


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    train = DataLoader(BracketDataset(768, 0), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(BracketDataset(256, 1), batch_size=64, collate_fn=collate)
    model = LSTMClassifier()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    ce = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        model.train()
        tot = 0.0
        for x, lengths, y in train:
            opt.zero_grad()
            loss = ce(model(x, lengths), y)
            loss.backward()
            opt.step()
            tot += loss.item()
        model.eval()
        with torch.no_grad():
            acc = torch.cat([model(x, n).argmax(1) == y for x, n, y in test]).float().mean().item()
        print(f"epoch {epoch} loss {tot / len(train):.4f} test acc {acc:.3f}")


if __name__ == "__main__":
    run()
