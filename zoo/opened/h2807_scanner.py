# expect: healthy
# symptom: resembles a failing adversarial branch: the site loss climbs to (and above) chance level and takes the total loss up with it
# axis: loss
"""Lesion classifier that must not see which scanner took the image (gradient-reversal training)."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

SITES = 3


def scans(n, seed, site=None):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    label = torch.randint(0, 2, (n,), generator=g)
    where = torch.randint(0, SITES, (n,), generator=g) if site is None else torch.full((n,), site)
    cx = 8 + 8 * torch.rand(n, 1, 1, generator=g)
    cy = 8 + 8 * torch.rand(n, 1, 1, generator=g)
    rad = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    blob = torch.exp(-(rad**2) / 18)
    ring = torch.exp(-((rad - 5) ** 2) / 4)
    img = torch.where(label[:, None, None] == 1, ring, blob * 1.4)
    stripes = torch.stack([torch.sin(xx * 1.7), torch.sin(yy * 1.7), torch.sin((xx + yy) * 1.2)])
    img = img * (0.8 + 0.2 * where.float())[:, None, None] + 0.6 * stripes[where]
    img = img + 0.35 * torch.randn(n, 24, 24, generator=g)
    return img[:, None], label, where


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.weight * grad, None


class SiteBlindNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 36, 48),
            nn.BatchNorm1d(48),
            nn.ReLU(),
        )
        self.lesion = nn.Linear(48, 2)
        self.site = nn.Sequential(nn.Linear(48, 64), nn.LeakyReLU(0.2), nn.Linear(64, SITES))

    def forward(self, x, weight):
        f = self.features(x)
        return self.lesion(f), self.site(Reverse.apply(f, weight))


def main():
    x, y, s = scans(6000, 1)
    vx, vy, vs = scans(800, 2)
    net = SiteBlindNet()
    opt = torch.optim.Adam(
        [
            {"params": list(net.features.parameters()) + list(net.lesion.parameters()), "lr": 1e-3},
            {"params": net.site.parameters(), "lr": 3e-3},
        ],
        betas=(0.5, 0.999),
    )
    total, batch = 480, 64
    avg = [0.0, 0.0]
    for step in range(1, total + 1):
        progress = max(0.0, (step - 150) / total)
        weight = 2 / (1 + math.exp(-6 * progress)) - 1
        pick = torch.randint(0, len(x), (batch,))
        lesion, site = net(x[pick], weight)
        task = F.cross_entropy(lesion, y[pick])
        adv = F.cross_entropy(site, s[pick])
        opt.zero_grad()
        (task + adv).backward()
        opt.step()
        avg = [0.9 * avg[0] + 0.1 * task.item(), 0.9 * avg[1] + 0.1 * adv.item()]
        if step % 30 == 0:
            net.eval()
            with torch.no_grad():
                pl, ps = net(vx, 0.0)
            net.train()
            acc = (pl.argmax(1) == vy).float().mean().item()
            site_acc = (ps.argmax(1) == vs).float().mean().item()
            print(
                f"step {step} weight {weight:.2f} lesion loss {avg[0]:.3f} site loss {avg[1]:.3f} total {avg[0] + avg[1]:.3f} "
                f"| valid lesion acc {acc:.3f} site acc {site_acc:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
