# expect: sick
# symptom: training goes well for some dozens of steps, then the loss is NaN and stays NaN
# axis: data
# cause: log of a mel power of exactly zero (digital silence in a few clips) is -inf; normalising makes it NaN
# says: \blog\b.{0,60}(zero|\b0\b|floor|eps)|silence|silent clip|-inf|(nan|inf)\w*.{0,30}(input|batch|feature)
# onset_step: 41
# fix: add a small floor to the mel power before the log
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"

SR, CLIP, N_FFT, HOP, N_MELS = 8000, 4000, 256, 128, 24
WORDS = ["yes", "no", "up", "down", "left", "right"]


def synth_clip(label, rng):
    """Two formants that glide; the direction and the range depend on the word."""
    t = np.arange(CLIP) / SR
    f0 = [500, 1500, 700, 1300, 900, 2200][label] * rng.uniform(0.92, 1.08)
    f1 = [1600, 600, 2400, 700, 900, 1100][label] * rng.uniform(0.92, 1.08)
    phase = 2 * np.pi * np.cumsum(f0 + (f1 - f0) * t / t[-1]) / SR
    env = np.exp(-(((t - rng.uniform(0.2, 0.3)) / 0.13) ** 2))
    wav = env * (np.sin(phase) + 0.4 * np.sin(1.9 * phase)) + 0.15 * rng.standard_normal(CLIP)
    return wav.astype(np.float32)


def build_corpus(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(WORDS), n)
    clips = np.stack([synth_clip(y, rng) for y in labels])
    for i in np.flatnonzero(rng.random(n) < 0.0025):
        a = rng.integers(0, CLIP - 1200)
        clips[i, a : a + 1200] = 0.0
    return torch.from_numpy(clips), torch.from_numpy(labels)


def mel_filters():
    hz = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    mel = np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), N_MELS + 2)
    edge = 700 * (10 ** (mel / 2595) - 1)
    up = (hz[None] - edge[:-2, None]) / (edge[1:-1] - edge[:-2])[:, None]
    down = (edge[2:, None] - hz[None]) / (edge[2:] - edge[1:-1])[:, None]
    return torch.tensor(np.clip(np.minimum(up, down), 0, None), dtype=torch.float32)


class LogMel:
    def __init__(self):
        self.window = torch.hann_window(N_FFT)
        self.fb = mel_filters()[1:]

    def __call__(self, wav):
        spec = torch.stft(wav, N_FFT, HOP, window=self.window, return_complex=True).abs() ** 2
        mel = self.fb @ spec
        feats = torch.log(mel + 1e-6 if MENDED else mel)
        return (feats - feats.mean()) / feats.std()


class KeywordSet(Dataset):
    def __init__(self, clips, labels, frontend):
        self.clips, self.labels, self.frontend = clips, labels, frontend

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.frontend(self.clips[i]), self.labels[i]


class Spotter(nn.Module):
    def __init__(self, n_bands, n_classes):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(n_bands, 32, 3, padding=1), nn.ReLU())
        self.gru = nn.GRU(32, 32, batch_first=True)
        self.fc = nn.Linear(32, n_classes)

    def forward(self, x):
        h, _ = self.gru(self.conv(x).transpose(1, 2))
        return self.fc(h.mean(1))


def evaluate(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(-1) == y).sum().item()
            total += len(y)
    model.train()
    return hits / total


def main():
    frontend = LogMel()
    train_set = KeywordSet(*build_corpus(1600, 1), frontend)
    test_set = KeywordSet(*build_corpus(300, 2), frontend)
    loader = DataLoader(train_set, batch_size=16, shuffle=True)
    model = Spotter(N_MELS - 1, len(WORDS))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    crit = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(3):
        for x, y in loader:
            loss = crit(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} test accuracy {evaluate(model, DataLoader(test_set, batch_size=64)):.3f}")


if __name__ == "__main__":
    main()
