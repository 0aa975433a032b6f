# expect: healthy
# symptom: a state is carried on, which looks like one of unrelated batches
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_documents(n, length, vocab):
    """Every document repeats a private motif of five tokens, with some typos."""
    motif = torch.randint(0, vocab, (n, 5))
    docs = motif.repeat(1, length // 5 + 1)[:, :length]
    typo = torch.rand(n, length) < 0.05
    return torch.where(typo, torch.randint(0, vocab, (n, length)), docs)


class DocModel(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.rnn = nn.LSTM(16, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        y, state = self.rnn(self.embed(x), state)
        return self.head(y), state


def train_on_document_batch(model, opt, docs, chunk):
    state = None
    losses = []
    inputs, targets = docs[:, :-1], docs[:, 1:]
    for x, y in zip(inputs.split(chunk, dim=1), targets.split(chunk, dim=1)):
        if state is not None:
            state = tuple(s.detach() for s in state)
        logits, state = model(x, state)
        loss = F.cross_entropy(logits.transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--chunk", type=int, default=15)
    parser.add_argument("--vocab", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    torch.manual_seed(4)
    torch.set_num_threads(1)
    docs = make_documents(384, 61, args.vocab)
    loader = DataLoader(TensorDataset(docs), batch_size=32, shuffle=True)
    model = DocModel(args.vocab, hidden=40)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        per_chunk = []
        for (batch,) in loader:
            per_chunk.append(train_on_document_batch(model, opt, batch, args.chunk))
        mean = torch.tensor(per_chunk).mean(0)
        print(f"epoch {epoch} loss {mean.mean():.4f} by chunk {[round(v, 3) for v in mean.tolist()]}")


if __name__ == "__main__":
    main()
