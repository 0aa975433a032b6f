# expect: sick
# symptom: the loss hardly leaves ln(classes), accuracy stays near chance, no error or warning
# axis: model
# cause: the classifier reads the LSTM output at the last padded position, not at the last real token of each row
# says: (pad|length|pack).{0,120}(last|final|hidden|output|state|step)|(last|final|\[:, ?-1\]).{0,120}(pad|length)
# onset_step: 0
# fix: take the output at index length - 1 of each row (or pack the sequences)
# mended: the script applies that change if the environment has MENDED=1
"""Routing of support tickets to four teams with an embedding + LSTM classifier."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
PAD, MAX_LEN, TEAMS = 0, 100, 4


class Vocab:
    def __init__(self):
        self.stoi = {"<pad>": PAD, "<unk>": 1}

    def encode(self, words, grow):
        ids = []
        for w in words:
            if grow and w not in self.stoi:
                self.stoi[w] = len(self.stoi)
            ids.append(self.stoi.get(w, 1))
        return ids

    def __len__(self):
        return len(self.stoi)


def write_tickets(n, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        team = int(rng.integers(0, TEAMS))
        length = int(np.clip(rng.lognormal(2.7, 0.45), 6, MAX_LEN))
        words = []
        for _ in range(length):
            u = rng.random()
            if u < 0.30:
                words.append(f"team{team}_{rng.integers(0, 25)}")
            elif u < 0.40:
                words.append(f"team{rng.integers(0, TEAMS)}_{rng.integers(0, 25)}")
            else:
                words.append(f"common_{rng.zipf(1.4) % 200}")
        yield words, team


class Tickets(Dataset):
    def __init__(self, n, seed, vocab, grow=False):
        self.items = [(vocab.encode(words, grow)[:MAX_LEN], team) for words, team in write_tickets(n, seed)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, team = self.items[i]
        row = torch.full((MAX_LEN,), PAD, dtype=torch.long)
        row[: len(ids)] = torch.tensor(ids)
        return row, len(ids), team


class TicketClassifier(nn.Module):
    def __init__(self, vocab_size, emb=32, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, TEAMS)

    def forward(self, tokens, lengths):
        out, _ = self.lstm(self.emb(tokens))
        last = out[torch.arange(len(out)), lengths - 1] if MENDED else out[:, -1]
        return self.fc(last)


def run_eval(model, loader):
    model.eval()
    hit = 0
    with torch.no_grad():
        for tokens, lengths, team in loader:
            hit += (model(tokens, lengths).argmax(-1) == team).sum().item()
    model.train()
    return hit / len(loader.dataset)


def main():
    torch.manual_seed(2)
    vocab = Vocab()
    train_set = Tickets(2400, 1, vocab, grow=True)
    train = DataLoader(train_set, batch_size=32, shuffle=True)
    valid = DataLoader(Tickets(500, 2, vocab), batch_size=250)
    model = TicketClassifier(len(vocab))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(3):
        for tokens, lengths, team in train:
            optimizer.zero_grad()
            loss = criterion(model(tokens, lengths), team)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"[{epoch}] step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"[{epoch}] valid accuracy {run_eval(model, valid):.3f}")


if __name__ == "__main__":
    main()
