# Segmentation of discs with a small U-Net and AdamW under a cosine. A folder of scans was exported with black and white swapped in the
# masks and with a saturated detector: 24 batches from step 270 of 320, shortly before the end.
import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
cfg = ap.parse_args()

SIDE = 32
grid = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")).float()


def scans(n, gen=None):
    mask = torch.zeros(n, SIDE, SIDE)
    for _ in range(3):
        mid = torch.rand(n, 2, 1, 1, generator=gen) * SIDE
        r = torch.rand(n, 1, 1, generator=gen) * 5 + 2
        mask = torch.maximum(mask, ((grid[None] - mid).pow(2).sum(1) < r * r).float())
    clutter = F.interpolate(torch.randn(n, 1, 8, 8, generator=gen), size=SIDE, mode="bilinear", align_corners=False)[
        :, 0
    ]
    image = 0.9 * mask + 0.7 * clutter + 0.5 * torch.randn(n, SIDE, SIDE, generator=gen)
    return image[:, None], mask[:, None]


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.SiLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = double(1, c), double(c, 2 * c), double(2 * c, 4 * c)
        self.u2, self.u1 = double(6 * c, 2 * c), double(3 * c, c)
        self.last = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        return self.last(self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1)))


def objective(logit, mask):
    s = torch.sigmoid(logit)
    dice = 1 - (2 * (s * mask).sum() + 1) / (s.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(logit, mask) + 0.5 * dice


fixed = torch.Generator().manual_seed(8)
vx, vy = scans(300, fixed)
torch.manual_seed(cfg.seed)
unet = UNet()
optim = torch.optim.AdamW(unet.parameters(), lr=4e-3, weight_decay=0.01)
for it in range(320):
    for grp in optim.param_groups:
        grp["lr"] = 4e-3 * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * it / 320)))
    x, y = scans(16)
    if 270 <= it < 294 and not cfg.twin:
        x, y = (x * 6).clamp(-1, 3), 1 - y
    loss = objective(unet(x), y)
    optim.zero_grad()
    loss.backward()
    optim.step()
    if it % 40 == 0:
        print(f"iteration {it}: {loss.item():.3f}")

with torch.no_grad():
    print("final:", objective(unet(vx), vy).item())
