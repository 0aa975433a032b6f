# expect: healthy
# symptom: a custom backward returns the NEGATED gradient, one loss term (site) is pushed up on purpose, has bumps up to 3 and never goes to 0, so the total loss is bumpy, target images come without labels
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
CLASSES, SIZE = 5, 14
STENCILS = (np.random.default_rng(12).random((CLASSES, 7, 7)) < 0.45).astype(np.float32)


def hospital(n, seed, site):
    """The same findings seen by two scanners: site 1 has inverted background ramp, blur and less contrast."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    img = rng.normal(0, 0.25, (n, SIZE, SIZE)).astype(np.float32)
    for i, k in enumerate(y):
        r, c = rng.integers(2, 6, 2)
        img[i, r : r + 7, c : c + 7] += STENCILS[k]
    if site == 1:
        ramp = np.linspace(0.4, -0.4, SIZE, dtype=np.float32)
        img = 0.5 * (img + np.roll(img, 1, 2)) * 0.9 + ramp[None, :, None]
    return torch.tensor(img, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class DANN(nn.Module):
    def __init__(self, c=16, d=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, c, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(c, 2 * c, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
            nn.Linear(18 * c, d),
            nn.ReLU(),
        )
        self.label = nn.Linear(d, CLASSES)
        self.site = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, strength):
        f = self.body(x)
        return self.label(f), self.site(Reverse.apply(f, strength)).squeeze(1)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    hit = (model(x, 0.0)[0].argmax(1) == y).float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(0)
    sx, sy = hospital(3000, 1, 0)
    tx, _ = hospital(3000, 2, 1)
    vx, vy = hospital(800, 3, 1)
    model = DANN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps, half = 500, 48
    flag = torch.cat([torch.zeros(half), torch.ones(half)])
    for step in range(steps):
        strength = 0.3 * (2 / (1 + math.exp(-8 * step / steps)) - 1)
        i, j = torch.randint(0, len(sx), (half,)), torch.randint(0, len(tx), (half,))
        out, dom = model(torch.cat([sx[i], tx[j]]), strength)
        cls = F.cross_entropy(out[:half], sy[i])
        site = F.binary_cross_entropy_with_logits(dom, flag)
        loss = cls + site
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} label {cls.item():.4f} site {site.item():.4f}", flush=True)
        if step % 125 == 124:
            print(f"step {step:4d} accuracy at the other site {accuracy(model, vx, vy):.3f}", flush=True)


if __name__ == "__main__":
    main()
