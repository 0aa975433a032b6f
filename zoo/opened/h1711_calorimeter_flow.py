# expect: healthy
# symptom: the loss is negative and goes on falling to about -35: a negative log-likelihood of a continuous density (normalising flow) has no lower bound at 0; gradient norms are large and clipped
# axis: none
# mended: none
import math
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(9)
D, COND, BATCH, STEPS = 10, 2, 256, 500


def showers(n, seed):
    """energy fractions in 10 calorimeter layers for given beam energy and angle (a thin manifold)"""
    rng = np.random.default_rng(seed)
    e, a = rng.uniform(0, 1, n), rng.uniform(0, 1, n)
    depth = np.arange(D)[None]
    start = 1.5 + 2.5 * e + 0.4 * rng.normal(size=n)
    width = 1.4 + 0.8 * a + 0.15 * rng.normal(size=n)
    prof = np.exp(-0.5 * ((depth - start[:, None]) / width[:, None]) ** 2)
    prof = prof / prof.sum(1, keepdims=True) * (0.9 + 0.05 * rng.normal(size=(n, 1)))
    x = prof + 0.004 * rng.normal(size=prof.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(np.stack([e, a], 1), dtype=torch.float32)


class Coupling(nn.Module):
    def __init__(self, flip, hidden=64):
        super().__init__()
        half = D // 2
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(half + COND, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * half)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def params(self, a, c):
        s, t = self.net(torch.cat([a, c], -1)).chunk(2, -1)
        return 2 * torch.tanh(s / 2), t

    def forward(self, x, c):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.params(a, c)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], -1), s.sum(-1)

    def inverse(self, z, c):
        a, b = z.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.params(a, c)
        b = (b - t) * (-s).exp()
        return torch.cat([b, a] if self.flip else [a, b], -1)


class Flow(nn.Module):
    def __init__(self, x, depth=6):
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(depth))
        g = torch.Generator().manual_seed(0)
        self.register_buffer("perms", torch.stack([torch.randperm(D, generator=g) for _ in range(depth)]))

    def log_prob(self, x, c):
        z = (x - self.mean) / self.std
        logdet = -self.std.log().sum()
        for layer, p in zip(self.layers, self.perms):
            z, ld = layer(z[:, p], c)
            logdet = logdet + ld
        return -0.5 * (z**2).sum(-1) - 0.5 * D * math.log(2 * math.pi) + logdet

    @torch.no_grad()
    def sample(self, c):
        z = torch.randn(len(c), D)
        for layer, p in zip(reversed(self.layers), reversed(self.perms)):
            z = layer.inverse(z, c)[:, p.argsort()]
        return z * self.std + self.mean


x, c = showers(20000, 0)
vx, vc = showers(2000, 1)
flow = Flow(x)
opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=STEPS, pct_start=0.15)
t0 = time.time()
for step in range(STEPS):
    k = torch.randint(0, len(x), (BATCH,))
    loss = -flow.log_prob(x[k], c[k]).mean()
    opt.zero_grad()
    loss.backward()
    gn = nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():9.3f} grad norm {gn.item():.1f}")
    if step % 100 == 99:
        with torch.no_grad():
            v = -flow.log_prob(vx, vc).mean().item()
        s = flow.sample(vc)
        print(
            f"== step {step} val nll {v:.3f} layer means off by {(s.mean(0) - vx.mean(0)).abs().max():.4f}, stds by {(s.std(0) - vx.std(0)).abs().max():.4f} ({time.time() - t0:.1f}s)"
        )
