# expect: sick
# symptom: the loss is fine for 200 steps at 16x16; with the larger pictures it is NaN at once and stays so
# axis: precision
# cause: the squared error is summed over the picture in float16, and with the larger pictures the sum exceeds 65504
# says: fp16|float16|half|overflow|65504|precision|dynamic range|float32
# onset_step: 201
# fix: cast to float32 before the sum
# mended: (pred - target).float() before squaring and summing
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(14)
T = 100
alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.06, T), 0)


class TinyUNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, c), nn.SiLU(), nn.Linear(c, c))
        self.d1, self.d2 = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.m = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.u = nn.Conv2d(3 * c, c, 3, padding=1)
        self.o = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, t):
        a = F.silu(self.d1(x) + self.time(t.float()[:, None] / T)[:, :, None, None])
        b = F.silu(self.m(F.silu(self.d2(a))))
        b = F.interpolate(b, scale_factor=2.0)
        return self.o(F.silu(self.u(torch.cat([a, b], 1))))


def clouds(n, side):
    base = torch.randn(n, 1, side // 4, side // 4)
    return F.interpolate(base, size=side, mode="bilinear", align_corners=False)


def criterion(pred, noise):
    # one summed error per picture, then the mean over the batch
    diff = pred.half() - noise.half()
    if os.environ.get("MENDED") == "1":
        diff = diff.float()
    per_picture = (diff * diff * 16).flatten(1).sum(1)
    hard = per_picture.detach() / per_picture.detach().mean()  # hard pictures count more
    return (hard * per_picture).float().mean() / pred[0].numel()


net = TinyUNet()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(280):
    side = 16 if step < 200 else 96
    x0 = clouds(8, side)
    t = torch.randint(T, (8,))
    noise = torch.randn_like(x0)
    ab = alpha_bar[t][:, None, None, None]
    pred = net(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t)
    loss = criterion(pred, noise)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 40 == 0 or step in (199, 201, 279):
        print(f"step {step} side {side} loss {loss.item():.3f}", flush=True)
