# expect: sick
# symptom: matching loss falls nicely for some hundred steps, then turns to NaN in one step and stays NaN
# axis: precision
# cause: Sinkhorn normalisation is done on exp(-cost/eps) in the plain domain in float32; as eps is annealed the kernel underflows to zero for whole rows and the division by the row or column sum is by zero, which gives inf and NaN (it belongs in the log domain).
# says: (underflow|(divi\w+|1/|reciprocal)[\s\S]{0,40}(zero|0\b)|log[- ]?(domain|space|sum)|logsumexp|exp(onential)?\b[\s\S]{0,80}(vanish|zero|\b0\b)|kernel[\s\S]{0,60}(vanish|zero|\b0\b))
# onset_step: 328
# fix: run the Sinkhorn iterations in the log domain (logsumexp)
# mended: yes
"""Keypoint matching between two views of a constellation with an optimal-transport head."""

import math
import os

import torch
from torch import nn

torch.set_num_threads(1)

cfg = dict(points=20, dim=24, width=96, batch=24, steps=450, lr=1.5e-3, eps_start=1.0, eps_end=0.005, iters=20, seed=4)


def sample_pairs(b, n, g):
    """Random planar constellations; the second view is rotated, jittered and shuffled."""
    a = torch.randn(b, n, 2, generator=g)
    mag = torch.rand(b, n, 1, generator=g)
    ang = (torch.rand(b, generator=g) - 0.5) * math.pi / 2
    rot = torch.stack([torch.stack([ang.cos(), -ang.sin()], -1), torch.stack([ang.sin(), ang.cos()], -1)], -2)
    c = a @ rot.transpose(1, 2) + 0.05 * torch.randn(b, n, 2, generator=g)
    mag2 = mag + 0.05 * torch.randn(b, n, 1, generator=g)
    perm = torch.stack([torch.randperm(n, generator=g) for _ in range(b)])
    left = torch.cat([a, mag], -1)
    right = torch.cat([c, mag2], -1).gather(1, perm[..., None].expand(-1, -1, 3))
    target = perm.argsort(1)
    return left, right, target


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.att = nn.MultiheadAttention(w, 4, batch_first=True)
        self.n1 = nn.LayerNorm(w)
        self.n2 = nn.LayerNorm(w)
        self.ff = nn.Sequential(nn.Linear(w, 2 * w), nn.GELU(), nn.Linear(2 * w, w))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.att(h, h, h, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class Describer(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(3, w), nn.GELU(), nn.Linear(w, w))
        self.blocks = nn.Sequential(Block(w), Block(w))
        self.out = nn.Linear(w, d)

    def forward(self, pts):
        return nn.functional.normalize(self.out(self.blocks(self.inp(pts))), dim=-1)


def transport(cost, eps, iters):
    kern = torch.exp(-cost / eps)
    v = torch.ones_like(kern[:, 0, :])
    for _ in range(iters):
        u = 1.0 / (kern @ v[..., None]).squeeze(-1)
        v = 1.0 / (kern.transpose(1, 2) @ u[..., None]).squeeze(-1)
    return u[..., None] * kern * v[:, None, :]


def transport_log(cost, eps, iters):
    logk = -cost / eps
    g = torch.zeros_like(logk[:, 0, :])
    for _ in range(iters):
        f = -torch.logsumexp(logk + g[:, None, :], 2)
        g = -torch.logsumexp(logk + f[..., None], 1)
    return torch.exp(f[..., None] + logk + g[:, None, :])


plan_fn = transport_log if os.environ.get("MENDED") == "1" else transport


def eps_at(step):
    frac = step / cfg["steps"]
    return cfg["eps_start"] * (cfg["eps_end"] / cfg["eps_start"]) ** frac


torch.manual_seed(cfg["seed"])
gen = torch.Generator().manual_seed(cfg["seed"] + 1)
net = Describer(cfg["width"], cfg["dim"])
opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=1e-3)
avg = None
for step in range(cfg["steps"]):
    left, right, tgt = sample_pairs(cfg["batch"], cfg["points"], gen)
    da, db = net(left), net(right)
    cost = (da[:, :, None] - db[:, None]).pow(2).sum(-1)
    plan = plan_fn(cost, eps_at(step), cfg["iters"])
    hit = plan.gather(2, tgt[..., None]).squeeze(-1)
    loss = -(hit + 1e-6).log().mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    avg = loss.item() if avg is None else 0.9 * avg + 0.1 * loss.item()
    if step % 20 == 0 or step == cfg["steps"] - 1:
        right_frac = (plan.argmax(2) == tgt).float().mean().item()
        print(
            f"[{step:4d}] eps={eps_at(step):.3f} loss={loss.item():.4f} avg={avg:.4f} matched={right_frac:.3f}",
            flush=True,
        )
