# expect: sick
# symptom: the training loss swings up and down in a regular rhythm over the whole run instead of settling; the learning rate goes to zero and back again and again
# axis: optimizer
# cause: CosineAnnealingLR gets T_max in epochs but step() is called after each batch, so the cosine runs through its whole period every few dozen steps and the rate climbs back to its maximum over and over
# says: t_max|(cosine|schedul\w*|annealing).{0,120}(per.?(batch|step|iteration)|(each|every) (\w+ )?(batch|step|iteration)|(inner|batch) loop|epochs?|oscillat|cycl|climb|repeat|period|swing|rises? again|too (often|many|fast))|(learning.?rate|\blr\b).{0,60}(cycl|climbs? back|rises? again|repeat|restart|back up|period|stepped (per|every|each)|own rhythm)
# onset_step: 40
# fix: call scheduler.step() once per epoch, or set T_max to the number of all batches
# mended: the scheduler is stepped once per epoch
"""Keyword spotting on synthetic log-mel features: conv front end, bidirectional GRU, attention pooling."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

N_MEL, FRAMES, N_PHONES, N_WORDS = 20, 40, 14, 24


def synth_corpus(n, seed):
    g = np.random.default_rng(100)
    phones = g.normal(0, 1.0, (N_PHONES, N_MEL))
    words = [g.integers(0, N_PHONES, 4) for _ in range(N_WORDS)]
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1.7, (n, FRAMES, N_MEL)), rng.integers(0, N_WORDS, n)
    for i in range(n):
        speaker = rng.normal(0, 0.6, N_MEL)
        t = rng.integers(0, 8)
        for p in words[y[i]]:
            dur = rng.integers(4, 9)
            x[i, t : t + dur] += phones[p] + speaker
            t += dur
    slips = rng.random(n) < 0.03  # annotators are not perfect
    y = np.where(slips, rng.integers(0, N_WORDS, n), y)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class KeywordNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(N_MEL, 48, 5, padding=2), nn.ReLU(), nn.Conv1d(48, 48, 3, stride=2, padding=1), nn.ReLU()
        )
        self.gru = nn.GRU(48, hidden, batch_first=True, bidirectional=True)
        self.att = nn.Linear(2 * hidden, 1)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * hidden, N_WORDS)

    def forward(self, x):
        h, _ = self.gru(self.front(x.transpose(1, 2)).transpose(1, 2))
        w = self.att(h).softmax(1)
        return self.out(self.drop((w * h).sum(1)))


def spec_augment(x):
    x = x.clone()
    for i in range(len(x)):
        t, f = torch.randint(0, FRAMES - 5, (1,)).item(), torch.randint(0, N_MEL - 3, (1,)).item()
        x[i, t : t + 5] = 0
        x[i, :, f : f + 3] = 0
    return x


class Trainer:
    def __init__(self, epochs=40, lr=0.4, batch_size=64):
        self.train = DataLoader(TensorDataset(*synth_corpus(640, 1)), batch_size, shuffle=True, drop_last=True)
        self.xv, self.yv = synth_corpus(300, 2)
        self.net = KeywordNet()
        self.epochs = epochs
        self.opt = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=epochs)
        self.step = 0

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        logits = self.net(self.xv)
        self.net.train()
        return F.cross_entropy(logits, self.yv).item(), (logits.argmax(1) == self.yv).float().mean().item()

    def fit(self):
        for epoch in range(self.epochs):
            total = 0.0
            for x, y in self.train:
                loss = F.cross_entropy(self.net(spec_augment(x)), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.opt.step()
                if not MENDED:
                    self.sched.step()
                total += loss.item()
                if self.step % 10 == 0:
                    print(f"step {self.step:4d} loss {loss.item():.4f} lr {self.opt.param_groups[0]['lr']:.2e}")
                self.step += 1
            if MENDED:
                self.sched.step()
            vl, va = self.evaluate()
            print(f"epoch {epoch:2d} train {total / len(self.train):.4f} val {vl:.4f} acc {va:.3f}")


Trainer().fit()
