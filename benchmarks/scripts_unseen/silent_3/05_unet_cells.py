# expect: sick
# fault: cosine decay reaches 0 early and stays there
# onset_step: 30
# says: (?i)((learning )?rate\b.{0,60}(\b0\b(?!\.\d*[1-9])|zero|vanish|gone)|schedul|decay|\blr\b.{0,30}(\b0\b(?!\.\d*[1-9])|zero)|never mov|not mov|no longer (mov|chang)|unchanged|no update|stopped (learn|mov|chang)|stall)
# note: total_updates divides by the accumulation factor 4 though accumulation was turned off, so the hand-written cosine is at 0 after 35 of 140 steps and is clamped there.
import math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU()
        )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2 = DoubleConv(1, 8), DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.u1 = DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        return self.out(self.u1(torch.cat([a, self.up(b)], 1)))


def cells(n, size=24):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    mask = torch.zeros(n, 1, size, size)
    for i in range(n):
        for _ in range(3):
            cy, cx = torch.randint(4, size - 4, (2,))
            r = torch.randint(2, 5, ()).item()
            mask[i, 0][((yy - cy) ** 2 + (xx - cx) ** 2) <= r * r] = 1
    return mask * 0.8 + 0.7 * torch.randn_like(mask), mask


class Runner:
    def __init__(self, steps=140, accum=4, lr=2e-3):
        torch.manual_seed(8)
        self.net = UNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.steps, self.lr = steps, lr
        self.total_updates = steps // accum

    def rate(self, k):
        frac = min(1.0, k / self.total_updates)
        return self.lr * 0.5 * (1 + math.cos(math.pi * frac))

    def fit(self):
        for k in range(self.steps):
            self.opt.param_groups[0]["lr"] = self.rate(k)
            x, m = cells(8)
            loss = F.binary_cross_entropy_with_logits(self.net(x), m)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if k % 20 == 0:
                print(f"{k:4d} bce {loss.item():.4f}")
        with torch.no_grad():
            x, m = cells(32)
            print("final bce", F.binary_cross_entropy_with_logits(self.net(x), m).item())


Runner().fit()
