# expect: sick
# symptom: the training loss falls, but samples and the validation loss of the averaged model stay as bad as at the start
# axis: harness
# cause: the exponential moving average has decay 0.9999 without warm-up in a run of 700 steps, so the averaged weights that are evaluated and sampled are still nearly the random initial ones
# says: \bema\b|moving.?average|averaged (weights|model|copy|param)|shadow (weights|param|copy|model)|0\.9999|decay[\s\S]{0,40}(too (high|slow|large|close)|warm-?up)
# onset_step: 1
# fix: ramp the EMA decay up with the step count (min(decay, (1+n)/(10+n))) or use a smaller decay for a short run
# mended: with MENDED=1 the decay is min(0.9999, (1+n)/(10+n))
import copy
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
T = 100


def eight_spots(n, g):
    ang = torch.randint(0, 8, (n,), generator=g) * (math.pi / 4)
    xy = 1.5 * torch.stack([ang.cos(), ang.sin()], 1)
    return xy + 0.12 * torch.randn(n, 2, generator=g)


class Schedule:
    def __init__(self, steps):
        self.beta = torch.linspace(2e-3, 0.08, steps)
        self.alpha = 1 - self.beta
        self.abar = self.alpha.cumprod(0)

    def add_noise(self, x0, eps, t):
        a = self.abar[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * eps


class Denoiser(nn.Module):
    def __init__(self, width=128, emb=32):
        super().__init__()
        self.emb = emb
        self.inp = nn.Linear(2 + emb, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, 2)

    def time_embedding(self, t):
        f = torch.exp(-math.log(1000) * torch.arange(self.emb // 2) / (self.emb // 2))
        a = t[:, None].float() * f[None]
        return torch.cat([a.sin(), a.cos()], 1)

    def forward(self, x, t):
        h = F.silu(self.inp(torch.cat([x, self.time_embedding(t)], 1)))
        for layer in self.hidden:
            h = h + F.silu(layer(h))
        return self.out(h)


class EMA:
    def __init__(self, model, decay=0.9999):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.n = 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = self.decay
        if os.environ.get("MENDED") == "1":
            d = min(d, (1 + self.n) / (10 + self.n))
        for s, p in zip(self.model.parameters(), model.parameters()):
            s.mul_(d).add_(p, alpha=1 - d)


@torch.no_grad()
def sample(model, sch, n):
    x = torch.randn(n, 2)
    for i in reversed(range(T)):
        t = torch.full((n,), i)
        eps = model(x, t)
        x = (x - sch.beta[i] / (1 - sch.abar[i]).sqrt() * eps) / sch.alpha[i].sqrt()
        if i > 0:
            x = x + sch.beta[i].sqrt() * torch.randn_like(x)
    return x


@torch.no_grad()
def validate(model, sch, x):
    g = torch.Generator().manual_seed(99)
    t = torch.randint(0, T, (len(x),), generator=g)
    eps = torch.randn(x.shape, generator=g)
    return F.mse_loss(model(sch.add_noise(x, eps, t), t), eps).item()


def miss(x):
    ang = torch.arange(8) * (math.pi / 4)
    centres = 1.5 * torch.stack([ang.cos(), ang.sin()], 1)
    return torch.cdist(x, centres).min(1).values.mean().item()


def main():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(11)
    loader = DataLoader(TensorDataset(eight_spots(25600, g)), batch_size=256, shuffle=True, drop_last=True)
    held_out = eight_spots(2000, g)
    sch, net = Schedule(T), Denoiser()
    ema = EMA(net)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)

    step = 0
    for epoch in range(7):
        running = 0.0
        for (x,) in loader:
            t = torch.randint(0, T, (len(x),))
            eps = torch.randn_like(x)
            loss = F.mse_loss(net(sch.add_noise(x, eps, t), t), eps)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            ema.update(net)
            step += 1
            running += loss.item()
        val = validate(ema.model, sch, held_out)
        dist = miss(sample(ema.model, sch, 500))
        print(
            f"epoch {epoch} step {step} train loss {running / len(loader):.4f} val loss {val:.4f} "
            f"sample distance from spots {dist:.3f}"
        )


if __name__ == "__main__":
    main()
