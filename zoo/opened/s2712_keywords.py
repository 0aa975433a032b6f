# expect: sick
# symptom: training loss falls for some epochs, then creeps up again towards chance although the learning rate is fine; held-out accuracy drops late in training
# axis: data
# cause: The time and frequency masking (SpecAugment) is written in place into the cached spectrograms, so the masks of all epochs accumulate and the training set is gradually erased.
# says: (in[- ]?place|without (a )?(clon|copy)\w*|clone|not (copied|cloned)|accumulat|permanent|persist|mutat|overwrit|modif|eras|corrupt|\bview\b|destr[ou])[\s\S]*(mask|augment)|(mask|augment)[\s\S]*(in[- ]?place|\bview\b|clone|cop(y|ied)|accumulat|permanent|persist|mutat|overwrit|modif|pile|eras|corrupt|destr[ou])
# onset_step: 21
# fix: clone the cached spectrogram before masking it
# mended: yes
"""Keyword spotting on synthetic log-mel spectrograms with a small conv + GRU model."""

import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

WORDS = ["yes", "no", "up", "down", "left", "right", "stop", "go"]
MELS, FRAMES = 32, 48


def formant_tracks():
    """Every word is a pair of formant trajectories over the utterance."""
    rng = np.random.RandomState(77)
    knots = rng.uniform(3, MELS - 3, size=(len(WORDS), 2, 4))
    grid = np.linspace(0, 3, 28)
    return np.stack([[np.interp(grid, np.arange(4), k) for k in w] for w in knots])


TRACKS = formant_tracks()


def synth(word, rng):
    spec = rng.normal(0, 0.55, size=(MELS, FRAMES)).astype(np.float32)
    speed = rng.uniform(0.8, 1.25)
    length = int(28 * speed)
    start = rng.randint(0, FRAMES - length)
    shift = rng.normal(0, 1.2)
    bins = np.arange(MELS)[:, None]
    for track in TRACKS[word]:
        f = np.interp(np.linspace(0, 27, length), np.arange(28), track) + shift
        spec[:, start : start + length] += 1.5 * np.exp(-0.5 * ((bins - f[None]) / 1.3) ** 2)
    return spec


class Keywords(Dataset):
    def __init__(self, n, seed, train):
        rng = np.random.RandomState(seed)
        self.labels = torch.from_numpy(rng.randint(0, len(WORDS), n))
        self.cache = torch.from_numpy(np.stack([synth(int(w), rng) for w in self.labels]))
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        spec = self.cache[i]
        if self.train:
            spec = self.augment(spec)
        return spec, self.labels[i]

    def augment(self, spec):
        if os.environ.get("MENDED") == "1":
            spec = spec.clone()
        w = random.randint(0, 6)
        t = random.randint(0, FRAMES - w)
        spec[:, t : t + w] = 0.0
        h = random.randint(0, 4)
        f = random.randint(0, MELS - h)
        spec[f : f + h, :] = 0.0
        return spec


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(MELS, 64, 5, padding=2),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(64, 64, 3, padding=1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.MaxPool1d(2),
        )
        self.rnn = nn.GRU(64, 48, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(96, len(WORDS))

    def forward(self, spec):
        h, _ = self.rnn(self.front(spec).transpose(1, 2))
        return self.head(self.drop(h.amax(1)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = tot = 0
    nll = 0.0
    for x, y in loader:
        out = model(x)
        nll += nn.functional.cross_entropy(out, y, reduction="sum").item()
        right += (out.argmax(1) == y).sum().item()
        tot += len(y)
    model.train()
    return nll / tot, right / tot


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=36)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    train = DataLoader(Keywords(640, 1, True), batch_size=32, shuffle=True, drop_last=True)
    held = DataLoader(Keywords(400, 2, False), batch_size=200)
    model = Spotter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for spec, label in train:
            loss = nn.functional.cross_entropy(model(spec), label, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        if epoch % 3 == 0 or epoch == 1:
            nll, acc = evaluate(model, held)
            print(
                f"epoch {epoch:2d} train loss {total / len(train):.4f} held-out nll {nll:.4f} acc {acc:.3f}", flush=True
            )
