# expect: sick
# symptom: loss falls very slowly and stays high, accuracy far below what the images allow
# axis: loss
# cause: the network already ends in a softmax and cross entropy applies softmax to its output again
# says: (double|two|twice|second|again|already|extra|redundant).*softmax|softmax.*(twice|again|double|logit|cross)
# onset_step: 0
# fix: give the cross entropy the raw logits (softmax only for reporting)
# mended: the script applies that change if the environment has MENDED=1
"""Glyph recognition for a label scanner: 20 symbols, 20x20 grey images, small residual CNN."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

N_GLYPHS, SIDE = 20, 20


def glyph_bank(rng):
    bank = np.zeros((N_GLYPHS, SIDE, SIDE), dtype=np.float32)
    for g in range(N_GLYPHS):
        for _ in range(4):
            r, c = rng.integers(4, 14, size=2)
            n = int(rng.integers(3, 8))
            if rng.random() < 0.5:
                bank[g, r, max(0, c - n // 2) : c + n] = 1
            else:
                bank[g, max(0, r - n // 2) : r + n, c] = 1
    return bank


def render(bank, n, rng):
    y = rng.integers(0, N_GLYPHS, n)
    x = bank[y].copy()
    for i in range(n):
        x[i] = np.roll(x[i], tuple(rng.integers(-2, 3, size=2)), axis=(0, 1)) * rng.uniform(0.7, 1.3)
    x += rng.normal(0, 0.25, x.shape)
    x = (x - x.mean()) / x.std()
    return torch.from_numpy(x.astype(np.float32)).unsqueeze(1), torch.from_numpy(y)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, padding=1)
        self.blocks = nn.Sequential(ResBlock(12, 16, 2), ResBlock(16, 32, 2))
        self.fc = nn.Linear(32 * 5 * 5, N_GLYPHS)

    def forward(self, x):
        h = self.blocks(F.relu(self.stem(x))).flatten(1)
        scores = self.fc(F.dropout(h, 0.1, self.training))
        return scores if MENDED else F.softmax(scores, dim=1)


class Scanner:
    """Wraps network, optimizer and criterion."""

    def __init__(self, lr):
        self.net = GlyphNet()
        self.criterion = nn.CrossEntropyLoss()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)

    def fit_batch(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        loss = self.criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, x, y):
        self.net.eval()
        acc = (self.net(x).argmax(1) == y).float().mean().item()
        self.net.train()
        return acc


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    bank = glyph_bank(rng)
    xtr, ytr = render(bank, 3200, rng)
    xva, yva = render(bank, 600, rng)
    loader = DataLoader(TensorDataset(xtr, ytr), batch_size=64, shuffle=True)
    scanner = Scanner(lr=0.01)
    step = 0
    for epoch in range(5):
        for x, y in loader:
            loss = scanner.fit_batch(x, y)
            if step % 25 == 0:
                print(f"step {step:4d} | loss {loss:.4f}")
            step += 1
        print(f"epoch {epoch} done | val acc {scanner.accuracy(xva, yva):.3f}")


if __name__ == "__main__":
    main()
