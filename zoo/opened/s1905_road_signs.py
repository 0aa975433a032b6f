# expect: sick
# symptom: training loss levels off at about half a nat and validation accuracy is stuck well under 100 percent on an easy task, with confusion between a few pairs of classes only
# axis: data
# cause: random horizontal flip augmentation is applied to classes whose meaning is left or right, and the label is not swapped, so half of those training images carry the wrong label
# says: (flip|mirror).{0,200}|(augment\w*).{0,120}(label|left|right|chiral|orientation|direction)
# onset_step: 0
# fix: drop the horizontal flip (or swap the left and right labels with it)
# mended: yes
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
CLASSES = ["ahead", "left", "right", "bend_left", "bend_right", "no_entry", "priority", "keep_left", "keep_right"]
SIZE = 20


def stroke(img, pts, value=1.0):
    for (y0, x0), (y1, x1) in zip(pts[:-1], pts[1:]):
        for s in np.linspace(0, 1, 30):
            y, x = y0 + s * (y1 - y0), x0 + s * (x1 - x0)
            img[int(round(y)) % SIZE, int(round(x)) % SIZE] = value
    return img


def glyph(name):
    img = np.zeros((SIZE, SIZE), dtype=np.float32)
    if name == "ahead":
        stroke(img, [(16, 10), (4, 10)])
        stroke(img, [(8, 6), (4, 10), (8, 14)])
    elif name in ("left", "right"):
        stroke(img, [(10, 16), (10, 4)])
        stroke(img, [(6, 8), (10, 4), (14, 8)])
    elif name in ("bend_left", "bend_right"):
        stroke(img, [(16, 13), (9, 13), (9, 5)])
        stroke(img, [(6, 8), (9, 5), (12, 8)])
    elif name == "no_entry":
        stroke(img, [(9, 4), (9, 16)])
        stroke(img, [(10, 4), (10, 16)])
        stroke(img, [(11, 4), (11, 16)])
    elif name == "priority":
        stroke(img, [(4, 10), (10, 16), (16, 10), (10, 4), (4, 10)])
    else:
        stroke(img, [(5, 14), (14, 6)])
        stroke(img, [(9, 6), (14, 6), (14, 11)])
    if name.endswith("right"):
        img = img[:, ::-1].copy()
    return img


class Augment:
    def __init__(self, shift=2, flip=0.5, erase=0.3):
        self.shift, self.flip, self.erase = shift, flip, erase

    def __call__(self, img, rng):
        dy, dx = rng.integers(-self.shift, self.shift + 1, size=2)
        img = np.roll(img, (dy, dx), axis=(0, 1))
        if rng.random() < self.flip:
            img = img[:, ::-1]
        if rng.random() < self.erase:
            y, x = rng.integers(0, SIZE - 5, size=2)
            img = img.copy()
            img[y : y + 5, x : x + 5] = 0
        return np.ascontiguousarray(img)


class Signs(Dataset):
    def __init__(self, n, seed, transform=None):
        self.rng = np.random.default_rng(seed)
        bank = np.stack([glyph(c) for c in CLASSES])
        self.labels = self.rng.integers(len(CLASSES), size=n)
        gain = self.rng.uniform(0.5, 1.5, size=(n, 1, 1))
        self.images = (bank[self.labels] * gain + self.rng.normal(0, 0.3, size=(n, SIZE, SIZE))).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i]
        if self.transform is not None:
            img = self.transform(img, self.rng)
        return torch.from_numpy(img)[None], int(self.labels[i])


def conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)
    )


def evaluate(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return hits / total


def main():
    torch.manual_seed(0)
    aug = Augment(flip=0.0) if MENDED else Augment()
    train = DataLoader(Signs(3200, 1, aug), batch_size=64, shuffle=True)
    val = DataLoader(Signs(900, 2), batch_size=300)
    model = nn.Sequential(
        conv(1, 8),
        conv(8, 16),
        nn.Flatten(),
        nn.Linear(16 * 25, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, len(CLASSES)),
    )
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    step = 0
    for epoch in range(7):
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val_acc {evaluate(model, val):.3f}")


if __name__ == "__main__":
    main()
