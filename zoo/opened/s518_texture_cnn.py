# expect: sick
# symptom: the first epoch is normal, then the loss jumps up at the first step of the second epoch, accuracy drops, and a later epoch blows up altogether
# axis: data
# cause: __getitem__ normalises the cached image tensors in place (sub_/div_), so every epoch normalises the already normalised images once more and the inputs grow from epoch to epoch
# says: in[- ]?place|(normali[sz]\w*|standardi[sz]\w*|sub_|div_).{0,80}(again|repeated|repeatedly|twice|every epoch|each epoch|more than once|over and over|cumulativ|compound|accumulat|cache|stored)|(again|repeated|twice|double|cumulative|compounding).{0,30}(normali[sz]|standardi[sz])|(cache|dataset|stored|source|original|input|image|pixel)\w*.{0,60}(mutat|modified|overwritten|altered|grow|drift|change).{0,60}(epoch|time|visit|read|access|getitem)
# onset_step: 76
# fix: normalise out of place: img = (img - mean) / std
# mended: with MENDED=1 __getitem__ clones the cached image before the in-place arithmetic
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

MEAN, STD = 0.45, 0.25
CLASSES = ["stripes", "checks", "dots", "gradient", "rings", "noise"]


def texture(kind, rng, size=16):
    y, x = np.mgrid[0:size, 0:size].astype(np.float32)
    a, f, p = rng.uniform(0, np.pi), rng.uniform(0.8, 1.6), rng.uniform(0, 6.28)
    u, v = x * np.cos(a) + y * np.sin(a), -x * np.sin(a) + y * np.cos(a)
    if kind == "stripes":
        img = np.sin(f * u + p)
    elif kind == "checks":
        img = np.sign(np.sin(f * u + p) * np.sin(f * v))
    elif kind == "dots":
        img = ((np.sin(f * u + p) + np.sin(f * v + p)) > 1.0) * 2.0 - 1
    elif kind == "gradient":
        img = (u - u.mean()) / 8
    elif kind == "rings":
        img = np.sin(f * np.hypot(x - rng.uniform(4, 12), y - rng.uniform(4, 12)) + p)
    else:
        img = rng.standard_normal((size, size))
    img = img + 0.9 * rng.standard_normal((size, size))
    return np.clip(MEAN + 0.2 * img, 0, 1).astype(np.float32)


class TextureDataset(Dataset):
    """Decodes everything once and keeps it in memory."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), n)
        self.images = [torch.from_numpy(texture(CLASSES[k], rng))[None] for k in self.labels]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        if os.environ.get("MENDED") == "1":
            img = img.clone()
        img.sub_(MEAN).div_(STD)
        if torch.rand(()) < 0.5:
            img = img.flip(-1)
        return img, int(self.labels[i])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(48 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, len(CLASSES)),
    )


def train_epoch(model, loader, opt, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 25 == 0:
            print(f"epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.4f}")


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(42)
    train = DataLoader(TextureDataset(2400, 0), batch_size=32, shuffle=True)
    val = DataLoader(TextureDataset(400, 1), batch_size=100)
    model = make_model()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(7):
        train_epoch(model, train, opt, epoch)
        print(f"epoch {epoch} val accuracy {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
