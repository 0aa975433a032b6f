# expect: sick
# symptom: the loss goes up in the first updates and then bounces on a high level (or hangs near ln(10)); the accuracy is far below what the same settings reach with the full batch
# axis: optimizer
# cause: gradients of 8 micro-batches are summed without dividing the loss by the number of micro-batches, so the gradient (and with SGD the effective learning rate) is 8 times too large
# says: (accumul|micro.?batch).{0,240}(divid|scal|averag|mean|normali[sz]|sum|times|too (large|high|big)|8)|(divid|scal|averag|normali[sz]).{0,120}(accumul|micro.?batch)|effective (learning.?rate|lr)
# onset_step: 0
# fix: divide each micro-batch's loss by the number of accumulated micro-batches
# mended: loss / accumulate
"""Digit-like glyph classifier, SGD, large batch made of micro-batches."""

import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

config = {"lr": 0.08, "momentum": 0.9, "micro": 12, "accumulate": 8, "updates": 200, "weight_decay": 5e-4}


class Glyphs:
    """Ten stroke patterns on a 14x14 raster, moved, thickened and noised."""

    def __init__(self, seed):
        proto = np.random.default_rng(42)
        self.shapes = []
        for _ in range(10):
            pts = proto.uniform(2, 11, (5, 2))
            line = np.concatenate([np.linspace(a, b, 12) for a, b in zip(pts[:-1], pts[1:])])
            self.shapes.append(line)
        self.rng = np.random.default_rng(seed)
        self.grid = np.stack(np.mgrid[:14, :14], -1).reshape(-1, 2)

    def batch(self, n):
        y = self.rng.integers(0, 10, n)
        out = np.empty((n, 1, 14, 14), dtype=np.float32)
        for i, c in enumerate(y):
            a = self.rng.normal(0, 0.2)
            rot = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
            pts = (self.shapes[c] - 6.5) @ rot.T + 6.5 + self.rng.normal(0, 0.9, 2)
            d = ((self.grid[:, None] - pts[None]) ** 2).sum(-1).min(1)
            out[i, 0] = np.exp(-d / self.rng.uniform(0.6, 1.6)).reshape(14, 14)
        out += self.rng.normal(0, 0.25, out.shape)
        return torch.from_numpy(out), torch.from_numpy(y)


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.fc = nn.Sequential(nn.Linear(32 * 9, 96), nn.ReLU(), nn.Linear(96, 10))

    def forward(self, x):
        return self.fc(self.features(x))


def train():
    torch.manual_seed(21)
    stream, held = Glyphs(1), Glyphs(2)
    vx, vy = held.batch(400)
    net = GlyphNet()
    criterion = nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(
        net.parameters(), lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"]
    )
    n_acc = config["accumulate"]
    running, done, micro = 0.0, 0, 0
    sgd.zero_grad()
    while done < config["updates"]:
        x, y = stream.batch(config["micro"])
        loss = criterion(net(x), y)
        running += loss.item() / n_acc
        if MENDED:
            loss = loss / n_acc
        loss.backward()
        micro += 1
        if micro % n_acc == 0:
            sgd.step()
            sgd.zero_grad()
            done += 1
            if done % 10 == 0 or done < 4:
                with torch.no_grad():
                    acc = (net(vx).argmax(1) == vy).float().mean().item()
                print(f"update {done:3d} loss {running:.4f} val acc {acc:.3f}")
            running = 0.0


if __name__ == "__main__":
    train()
