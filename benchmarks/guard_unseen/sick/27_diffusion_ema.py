# Denoising diffusion of points, AdamW, evaluated on EMA weights. Fault: steps 620 to 624 run at the rate 0.5.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
import copy

g = torch.Generator().manual_seed(221)


def points(n):
    t = 6.28 * torch.rand(n, generator=g)
    return torch.stack([t.cos(), (2 * t).sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


data, held = points(8000), points(3000)
bar = torch.cumprod(1 - torch.linspace(1e-3, 0.15, 40), 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(40, 24)
        self.net = nn.Sequential(nn.Linear(26, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.t(t)], 1))


def loss_of(model, x, t, eps):
    a = bar[t][:, None]
    return nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * eps, t), eps)


torch.manual_seed(args.seed)
model = Denoiser()
ema = copy.deepcopy(model)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(800):
    opt.param_groups[0]["lr"] = 0.5 if 620 <= step < 625 and not args.twin else 2e-3
    x = data[torch.randint(0, 8000, (128,))]
    loss = loss_of(model, x, torch.randint(0, 40, (128,)), torch.randn(128, 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters()):
            e.mul_(0.98).add_(p, alpha=0.02)
    if step % 80 == 0:
        print("step", step, "noise mse", loss.item())
ema.eval()
with torch.no_grad():
    t, eps = torch.randint(0, 40, (3000,), generator=g), torch.randn(3000, 2, generator=g)
    print("final:", loss_of(ema, held, t, eps).item())
