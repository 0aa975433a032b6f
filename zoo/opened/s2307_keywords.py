# expect: sick
# symptom: training loss falls in the first epoch and then climbs epoch after epoch although held-out accuracy stays high, then slips; nothing explodes
# axis: data
# cause: the augmentation (SpecAugment masking) writes in place into a view of the cached features, so the masks pile up in the training set epoch after epoch and erase the data
# says: (in[- ]?place|alias|view|reference|(without|no|not|never|missing|instead of).{0,40}(clon|cop(y|ie))|accumulat|pile|permanent|cumulat|erod|erase|corrupt|overwrit|mutat|modif).{0,160}(cache|stored|dataset|data set|training set|training data|train data|feature|spectrogram|mask|original)|(mask|augment|zero).{0,160}(in[- ]?place|self\.feats|remain|stay|accumulat|pile|permanent|cumulat|persist|overwrit|mutat|cop(y|ied)|clone)
# onset_step: 104
# fix: clone the features before masking them in __getitem__
# mended: yes
"""Keyword spotting on log-mel style features with SpecAugment and a small conv + GRU net."""

import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

N_MELS, N_FRAMES, N_WORDS = 40, 48, 12
N_TRAIN, N_TEST = 3296, 480
BATCH, EPOCHS = 32, 7


def synth_corpus(n, seed):
    """Each word is three formant tracks; speakers differ in pitch, speed and loudness."""
    tracks = np.random.default_rng(77).uniform(4, 36, size=(N_WORDS, 3, 4))
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 3, N_FRAMES)
    bins = np.arange(N_MELS)[:, None]
    feats = np.empty((n, N_MELS, N_FRAMES), dtype=np.float32)
    words = rng.integers(0, N_WORDS, n)
    for i, w in enumerate(words):
        shift = rng.normal(0, 1.2)
        warp = np.clip(t * rng.uniform(0.8, 1.2) + rng.normal(0, 0.12), 0, 3)
        spec = np.zeros((N_MELS, N_FRAMES))
        for k in range(3):
            centre = np.interp(warp, np.arange(4), tracks[w, k]) + shift
            spec += np.exp(-0.5 * ((bins - centre) / 1.6) ** 2) * rng.uniform(0.5, 1.2)
        feats[i] = spec + rng.normal(0, 0.6, spec.shape)
    feats -= feats.mean(axis=(1, 2), keepdims=True)
    feats /= feats.std(axis=(1, 2), keepdims=True)
    return torch.from_numpy(feats), torch.from_numpy(words)


def spec_augment(spec, gen, n_freq=2, max_f=9, n_time=2, max_t=11):
    n_mels, n_frames = spec.shape
    for _ in range(n_freq):
        width = int(torch.randint(0, max_f, (1,), generator=gen))
        start = int(torch.randint(0, n_mels - width, (1,), generator=gen))
        spec[start : start + width, :] = 0.0
    for _ in range(n_time):
        width = int(torch.randint(0, max_t, (1,), generator=gen))
        start = int(torch.randint(0, n_frames - width, (1,), generator=gen))
        spec[:, start : start + width] = 0.0
    return spec


class KeywordSet(Dataset):
    """Features are computed once and held in memory."""

    def __init__(self, n, seed, augment):
        self.feats, self.words = synth_corpus(n, seed)
        self.augment = augment
        self.gen = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        spec = self.feats[i].clone() if MENDED else self.feats[i]
        if self.augment:
            spec = spec_augment(spec, self.gen)
        return spec, self.words[i]


class SpotNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(N_MELS, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(width, 48, batch_first=True, bidirectional=True)
        self.out = nn.Linear(96, N_WORDS)

    def forward(self, x):
        h = self.front(x).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h.mean(1))


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(3)
    train_set = KeywordSet(N_TRAIN, seed=1, augment=True)
    test_set = KeywordSet(N_TEST, seed=2, augment=False)
    train_loader = DataLoader(train_set, BATCH, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 120)
    net = SpotNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1.5e-3, weight_decay=1e-2)

    step, started = 0, time.time()
    for epoch in range(EPOCHS):
        total = 0.0
        for spec, word in train_loader:
            loss = F.cross_entropy(net(spec), word)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            step += 1
            total += loss.item()
            if step % 50 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
        print(
            f"epoch {epoch + 1}  train loss {total / len(train_loader):.4f}  "
            f"test acc {accuracy(net, test_loader):.3f}  ({time.time() - started:.1f}s)"
        )


if __name__ == "__main__":
    main()
