# expect: sick
# symptom: the train loss is a sawtooth (near 0, then a jump, again and again) and validation accuracy stays low
# axis: data
# cause: the clips are listed folder by folder (sorted by class) and the loader does not shuffle them
# says: shuffl|(sort|order|group)\w*.{0,40}(class|label|folder)|(one|single|same) (class|label).{0,40}batch
# onset_step: 0
# fix: shuffle=True in the train DataLoader
# mended: the script applies that change if the environment has MENDED=1
"""Keyword spotting on log-mel patches, one folder of clips for every word."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(0)

WORDS = ["yes", "no", "up", "down", "left", "right", "go", "stop"]
N_MEL, N_FRAMES = 24, 32


def word_template(word_id):
    g = np.random.default_rng(100 + word_id)
    return g.uniform(3, N_MEL - 4, size=3), g.uniform(-0.25, 0.25, size=3), g.uniform(0, N_FRAMES - 12, size=3)


def synth_clip(word_id, g):
    freq, slope, start = word_template(word_id)
    mel = np.arange(N_MEL)[:, None]
    t = np.arange(N_FRAMES)[None, :]
    shift = g.normal(0, 1.5)
    pitch = g.normal(0, 0.8)
    out = np.zeros((N_MEL, N_FRAMES))
    for f, s, a in zip(freq, slope, start):
        on = ((t >= a + shift) & (t < a + shift + 12)).astype(float)
        out += on * np.exp(-0.5 * ((mel - f - pitch - s * (t - a)) / 1.1) ** 2)
    return (out + 0.35 * g.standard_normal(out.shape)).astype(np.float32)


class SpeechFolder(Dataset):
    """Walks root/<word>/<clip>, keeps the patches in memory."""

    def __init__(self, split, per_word):
        self.items = []
        for word_id, word in enumerate(WORDS):
            g = np.random.default_rng([word_id, 1 if split == "train" else 2])
            for k in range(per_word):
                self.items.append((f"{split}/{word}/{k:04d}.npy", synth_clip(word_id, g), word_id))
        self.augment = split == "train"

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        _, patch, label = self.items[i]
        x = torch.from_numpy(patch).clone()
        if self.augment:
            at = int(torch.randint(0, N_MEL - 3, ()))
            x[at : at + 2] = 0.0
        return x.unsqueeze(0), label


class KwsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3, padding=1)
        self.n1 = nn.GroupNorm(4, 16)
        self.c2 = nn.Conv2d(16, 24, 3, padding=1)
        self.n2 = nn.GroupNorm(4, 24)
        self.fc = nn.Linear(24 * (N_MEL // 4) * (N_FRAMES // 4), 64)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(64, len(WORDS))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.n2(self.c2(x))), 2)
        return self.out(self.drop(F.gelu(self.fc(x.flatten(1)))))


def accuracy(model, loader):
    model.eval()
    good = total = 0
    with torch.no_grad():
        for x, y in loader:
            good += (model(x).argmax(1) == y).sum().item()
            total += y.numel()
    return good / total


def main():
    options = dict(batch_size=32, num_workers=0, drop_last=False)
    train = DataLoader(SpeechFolder("train", 320), **options, **({"shuffle": True} if MENDED else {}))
    val = DataLoader(SpeechFolder("val", 30), **options)
    model = KwsNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(4):
        model.train()
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                print(f"[{epoch}] step {step} loss {loss.item():.4f}")
            step += 1
        print(f"[{epoch}] val accuracy {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
