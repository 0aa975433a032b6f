# expect: sick
# symptom: in the transfer stage the loss stays near ln(6) for all steps and the accuracy stays at chance
# axis: optimizer
# cause: the optimizer was built before the head was replaced, so it does not hold the new head's parameters
# says: optimi[sz]er.{0,80}(before|old|stale|not |n't|miss|lack|without)|(not |n't|never).{0,40}optimi[sz]er
# onset_step: 150
# fix: build the optimizer (or add the parameters) after the new head is in place
# mended: the script applies that change if the environment has MENDED=1
"""Texture backbone, then transfer to leaf diseases with a frozen feature extractor."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

SIZE = 24


def textures(n, kinds, gen):
    """Oriented gratings with random phase: kinds is a list of (angle, frequency)."""
    y = torch.randint(0, len(kinds), (n,), generator=gen)
    grid = torch.linspace(-1, 1, SIZE)
    gy, gx = torch.meshgrid(grid, grid, indexing="ij")
    table = torch.tensor(kinds)
    ang = table[y, 0] + 0.08 * torch.randn(n, generator=gen)
    frq = table[y, 1] * (1 + 0.05 * torch.randn(n, generator=gen))
    phase = 6.28 * torch.rand(n, generator=gen)
    u = gx[None] * ang.cos()[:, None, None] + gy[None] * ang.sin()[:, None, None]
    img = torch.sin(frq[:, None, None] * u + phase[:, None, None])
    return (img + 0.5 * torch.randn(n, SIZE, SIZE, generator=gen)).unsqueeze(1), y


class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(128, n_classes)

    def forward(self, x):
        return self.head(self.features(x))


class Trainer:
    def __init__(self, model, lr):
        self.model, self.lr, self.step = model, lr, 0
        self.opt = self.configure()

    def configure(self):
        return torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=self.lr)

    def setup(self, n_classes):
        if self.model.head.out_features != n_classes:
            self.model.head = nn.Linear(self.model.head.in_features, n_classes)
            self.opt = self.configure() if MENDED else self.opt

    def fit(self, x, y, steps, tag, frozen=False):
        self.setup(int(y.max()) + 1)
        self.model.train()
        if frozen:
            self.model.features.eval()
        for _ in range(steps):
            k = torch.randint(0, len(x), (48,))
            loss = F.cross_entropy(self.model(x[k]), y[k])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.step % 25 == 0:
                print(f"{tag} step {self.step:4d} loss {loss.item():.4f}")
            self.step += 1

    @torch.no_grad()
    def score(self, x, y):
        self.model.eval()
        return (self.model(x).argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(8)
    source = [(a * 0.39, f) for a in range(8) for f in (6.0, 12.0)]
    leaf = [(0.2, 9.0), (0.9, 9.0), (1.6, 9.0), (2.4, 9.0), (0.5, 15.0), (2.0, 15.0)]

    x, y = textures(2500, source, gen)
    model = Net(len(source))
    base = Trainer(model, lr=2e-3)
    base.fit(x, y, 150, "backbone")
    print(f"backbone accuracy {base.score(x[:500], y[:500]):.3f}")

    for p in model.features.parameters():
        p.requires_grad_(False)
    x, y = textures(1500, leaf, gen)
    xv, yv = textures(500, leaf, gen)
    tuner = Trainer(model, lr=3e-3)
    tuner.step = base.step
    for part in range(3):
        tuner.fit(x, y, 80, "leaf", frozen=True)
        print(f"leaf val accuracy {tuner.score(xv, yv):.3f}")


if __name__ == "__main__":
    main()
