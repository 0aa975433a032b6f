# expect: sick
# symptom: the loss of the LSTM classifier stays at about ln(number of classes), the accuracy at chance
# axis: model
# cause: the classifier reads the LSTM output at the last time step of right-padded sequences, that is after a long run of padding, instead of at the last real token
# says: pad.{0,80}(last|final|hidden|state|output|step|lstm|rnn|recurrent|pack|read)|(last|final).{0,60}pad|pack(ed)?.?(pad|sequence)|pack_padded|(ignor|unused|without|not us).{0,30}length
# onset_step: 1
# fix: take the output at position length-1 (or use pack_padded_sequence)
# mended: with MENDED=1 the output is gathered at length-1 of each sequence
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

TOPICS = {
    "billing": ["invoice", "refund", "charge", "card", "receipt", "vat"],
    "shipping": ["parcel", "courier", "delayed", "tracking", "address", "customs"],
    "account": ["password", "login", "email", "locked", "username", "verify"],
    "product": ["defect", "screen", "scratch", "warranty", "manual", "spare"],
}
COMMON = (
    "hello please help with my order since monday it still does not work and i need an answer "
    "thanks team regards could you check this again because nobody replied"
).split()
NAMES = list(TOPICS)


def ticket(rng):
    y = rng.randrange(len(NAMES))
    n = rng.randint(6, 18) if rng.random() < 0.97 else rng.randint(90, 128)
    words = [rng.choice(COMMON) for _ in range(n)]
    for _ in range(3):
        words[rng.randrange(n)] = rng.choice(TOPICS[NAMES[y]])
    if rng.random() < 0.3:
        words[rng.randrange(n)] = rng.choice(TOPICS[NAMES[rng.randrange(len(NAMES))]])
    return words, y


def encode(rows, vocab, max_len):
    x = np.zeros((len(rows), max_len), dtype=np.int64)
    lengths = np.zeros(len(rows), dtype=np.int64)
    for i, (words, _) in enumerate(rows):
        ids = [vocab.get(w, 1) for w in words][:max_len]
        x[i, : len(ids)] = ids
        lengths[i] = len(ids)
    y = np.array([r[1] for r in rows])
    return torch.from_numpy(x), torch.from_numpy(lengths), torch.from_numpy(y)


class TicketLSTM(nn.Module):
    def __init__(self, vocab_size, classes, emb=32, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x, lengths):
        out, _ = self.lstm(self.embedding(x))
        last = out[:, -1]
        if os.environ.get("MENDED") == "1":
            last = out[torch.arange(x.size(0)), lengths - 1]
        return self.fc(self.dropout(last))


def evaluate(model, tensors):
    model.eval()
    with torch.no_grad():
        x, l, y = tensors
        acc = (model(x, l).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--max-len", type=int, default=128)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    rows = [ticket(rng) for _ in range(3600)]
    vocab = {"<pad>": 0, "<unk>": 1}
    for words, _ in rows[:3200]:
        for w in words:
            vocab.setdefault(w, len(vocab))
    train = TensorDataset(*encode(rows[:3200], vocab, args.max_len))
    valid = encode(rows[3200:], vocab, args.max_len)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True)

    model = TicketLSTM(len(vocab), len(NAMES))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(args.epochs):
        total = 0.0
        for x, lengths, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x, lengths), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        print(f"epoch {epoch + 1}: train loss {total / len(loader):.4f} valid acc {evaluate(model, valid):.3f}")


if __name__ == "__main__":
    main()
