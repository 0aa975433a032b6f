# expect: sick
# symptom: the loss goes on falling in a noise that grows, or stays where it is, and held-out rows get worse
# axis: data
# cause: reading a row overwrites the stored one in place, so later epochs train on other data
# says: (overwrit|in.?place|mutat|modif|alias|view|copy|clone).{0,120}|stored.{0,40}(row|sample|data)
# onset_step: 0
# fix: copy the row before it is changed
# mended: the same with the fix
import os
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

MENDED = os.environ.get("MENDED") == "1"

BOS, EOS, PAD = 10, 11, 12


def make_samples(n):
    samples = []
    for _ in range(n):
        a, step = random.randrange(10), random.choice([1, 2, 3])
        samples.append([(a + step * k) % 10 for k in range(random.randint(4, 8))])
    return samples


def collate(batch):
    rows = []
    for seq in batch:
        if MENDED:
            seq = list(seq)
        seq.insert(0, BOS)
        seq.append(EOS)
        rows.append(torch.tensor(seq))
    x = pad_sequence(rows, batch_first=True, padding_value=PAD)
    return x[:, :-1], x[:, 1:]


class CharLM(nn.Module):
    def __init__(self, vocab=13, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h)


def run():
    random.seed(5)
    torch.manual_seed(5)
    train = make_samples(128)
    loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate)
    model = CharLM()
    opt = torch.optim.Adam(model.parameters(), lr=8e-3)
    crit = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(10):
        tot, count = 0.0, 0
        for x, y in loader:
            loss = crit(model(x).transpose(1, 2), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            tot += loss.item()
            count += 1
        print("epoch", epoch, "loss", round(tot / count, 4))
    held = make_samples(64)
    with torch.no_grad():
        x, y = collate(held)
        print("held-out loss", round(crit(model(x).transpose(1, 2), y).item(), 4))


run()
