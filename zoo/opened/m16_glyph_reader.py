# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: inputs are mirrored at random though the label depends on the side, and the label stays
# says: mirror|flip
# onset_step: 0
# fix: leave the mirror out or change the label
# mended: yes
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"

LETTERS = ["b", "d", "p", "q", "o", "t"]

BITMAPS = {
    "b": ["1000", "1000", "1110", "1001", "1001", "1110"],
    "d": ["0001", "0001", "0111", "1001", "1001", "0111"],
    "p": ["1110", "1001", "1001", "1110", "1000", "1000"],
    "q": ["0111", "1001", "1001", "0111", "0001", "0001"],
    "o": ["0000", "0110", "1001", "1001", "0110", "0000"],
    "t": ["0100", "1110", "0100", "0100", "0101", "0010"],
}


class GlyphDataset(Dataset):
    def __init__(self, size, train, seed):
        self.train = train
        rng = np.random.default_rng(seed)
        self.images, self.labels = [], []
        for _ in range(size):
            k = int(rng.integers(len(LETTERS)))
            canvas = np.zeros((12, 12), dtype=np.float32)
            glyph = np.array([[int(c) for c in row] for row in BITMAPS[LETTERS[k]]])
            r, c = rng.integers(0, 7), rng.integers(0, 9)
            canvas[r : r + 6, c : c + 4] = glyph
            self.images.append(canvas + 0.15 * rng.standard_normal((12, 12)).astype(np.float32))
            self.labels.append(k)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        if self.train:
            if not MENDED and random.random() < 0.5:
                img = np.fliplr(img)
            img = img * random.uniform(0.9, 1.1)
        return torch.from_numpy(np.ascontiguousarray(img)).float()[None], self.labels[i]


def build_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, len(LETTERS)),
    )


def main():
    random.seed(1)
    torch.manual_seed(1)
    train = DataLoader(GlyphDataset(960, True, seed=1), batch_size=64, shuffle=True)
    test = DataLoader(GlyphDataset(240, False, seed=2), batch_size=120)
    net = build_net()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    for epoch in range(4):
        net.train()
        for img, lab in train:
            loss = nn.functional.cross_entropy(net(img), lab)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            acc = np.mean([(net(i).argmax(1) == l).float().mean().item() for i, l in test])
        print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
