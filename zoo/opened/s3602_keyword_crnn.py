# expect: sick
# symptom: the loss is fine for a number of steps, then it is NaN for ever; accuracy falls to one class
# axis: data
# cause: the per-utterance normalisation divides by the standard deviation, which is 0 for silent clips (0/0)
# says: (std|deviation|varian|normali).{0,80}(zero|\b0\b|eps|silen|constant)|(silen|zero).{0,60}(std|devi)
# onset_step: 6
# fix: add a small epsilon to the standard deviation in the normalisation of the features
# mended: the script applies that change if the environment has MENDED=1
"""Keyword spotting: spectrogram -> conv stack -> GRU -> keyword."""

import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"

CFG = dict(rate=4000, seconds=0.5, n_fft=128, hop=64, batch=24, epochs=7, lr=2e-3, std_floor=1e-5 if FLAG else 0.0)
WORDS = ["_background", "up", "down", "left", "right", "stop"]


def synth_clip(rng, label):
    n = int(CFG["rate"] * CFG["seconds"])
    t = np.arange(n) / CFG["rate"]
    if label == 0:
        # room noise; some recordings come from a muted microphone
        level = 0.0 if rng.random() < 0.01 else rng.uniform(0.01, 0.2)
        return level * rng.standard_normal(n)
    start, end = [(300, 900), (900, 300), (500, 500), (1200, 1200), (1400, 700)][label - 1]
    shift = rng.uniform(0.9, 1.1)
    freq = shift * (start + (end - start) * t / t[-1])
    phase = 2 * math.pi * np.cumsum(freq) / CFG["rate"]
    onset, length = rng.uniform(0.0, 0.15), rng.uniform(0.25, 0.35)
    env = ((t > onset) & (t < onset + length)) * rng.uniform(0.1, 1.0)
    return env * (np.sin(phase) + 0.4 * np.sin(2 * phase)) + rng.uniform(0.02, 0.25) * rng.standard_normal(n)


class KeywordClips(Dataset):
    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(WORDS), size)
        self.waves = [synth_clip(rng, y).astype(np.float32) for y in self.labels]
        self.window = torch.hann_window(CFG["n_fft"])

    def __len__(self):
        return len(self.labels)

    def features(self, wave):
        spec = torch.stft(
            torch.from_numpy(wave), CFG["n_fft"], CFG["hop"], window=self.window, return_complex=True
        ).abs()
        spec = torch.log1p(20.0 * spec)
        return (spec - spec.mean()) / (spec.std() + CFG["std_floor"])

    def __getitem__(self, i):
        return self.features(self.waves[i]), int(self.labels[i])


class CRNN(nn.Module):
    def __init__(self, n_bins, n_words):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(n_bins, 48, 3, padding=1),
            nn.GroupNorm(4, 48),
            nn.ReLU(),
            nn.Conv1d(48, 48, 3, padding=1),
            nn.GroupNorm(4, 48),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(48, 48, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, n_words)

    def forward(self, spec):
        h = self.conv(spec).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.head(h.mean(dim=1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for spec, y in loader:
        right += (model(spec).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return right / total


def main():
    torch.manual_seed(3)
    train = DataLoader(KeywordClips(960, 1), batch_size=CFG["batch"], shuffle=True, drop_last=True)
    valid = DataLoader(KeywordClips(300, 2), batch_size=100)
    model = CRNN(CFG["n_fft"] // 2 + 1, len(WORDS))
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG["lr"], total_steps=CFG["epochs"] * len(train))
    step = 0
    for epoch in range(CFG["epochs"]):
        for spec, y in train:
            loss = F.cross_entropy(model(spec), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            if step % 10 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} valid acc {accuracy(model, valid):.3f}")
    print(f"final loss {loss.item():.4f} valid accuracy {accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
