# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

TASKS = ("parity", "majority", "last")


def make_rows(n, seed):
    rnd = random.Random(seed)
    rows = []
    for _ in range(n):
        bits = [rnd.randint(0, 1) for _ in range(rnd.randint(3, 12))]
        task = rnd.randrange(3)
        if TASKS[task] == "parity":
            y = sum(bits[-2:]) % 2
        elif TASKS[task] == "majority":
            y = int(sum(bits) * 2 > len(bits))
        else:
            y = bits[-1]
        rows.append((torch.tensor(bits), task, y))
    return rows


def collate(batch):
    batch.sort(key=lambda r: len(r[0]), reverse=True)
    seqs = [r[0] for r in batch]
    lengths = torch.tensor([len(s) for s in seqs])
    task = torch.tensor([r[1] for r in batch])
    y = torch.tensor([float(r[2]) for r in batch])
    return pad_sequence(seqs, batch_first=True, padding_value=2), lengths, task, y


class SharedEncoder(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.emb = nn.Embedding(3, dim, padding_idx=2)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(hidden, 1) for _ in TASKS])

    def forward(self, x, lengths, task, y):
        packed = pack_padded_sequence(self.emb(x), lengths, batch_first=True)
        _, (h, _) = self.lstm(packed)
        h = h[-1]
        preds, targets = [], []
        for t, head in enumerate(self.heads):
            mask = task == t
            preds.append(head(h[mask]).squeeze(1))
            targets.append(y[mask])
        return torch.cat(preds), torch.cat(targets)


def main():
    torch.manual_seed(0)
    random.seed(0)
    loader = DataLoader(make_rows(1280, 0), batch_size=64, shuffle=True, collate_fn=collate)
    held = DataLoader(make_rows(320, 1), batch_size=64, collate_fn=collate)
    model = SharedEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(8):
        model.train()
        total = 0.0
        for x, lengths, task, y in loader:
            pred, target = model(x, lengths, task, y)
            loss = bce(pred, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        model.eval()
        right, n = 0, 0
        with torch.no_grad():
            for batch in held:
                pred, target = model(*batch)
                right += ((pred > 0).float() == target).sum().item()
                n += len(target)
        print(f"epoch {epoch}: loss {total / len(loader):.4f} acc {right / n:.3f}")


if __name__ == "__main__":
    main()
