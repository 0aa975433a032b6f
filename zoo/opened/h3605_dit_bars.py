# expect: healthy
# symptom: the loss is noisy and flat after a short fall (resembles a model that has stopped learning)
# axis: none
"""Small class-conditional diffusion transformer on 8x8 bar images, adaLN-zero, EMA, DDIM sampling."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)

SIZE, PATCH, CLASSES, STEPS_T = 8, 2, 4, 200
TOKENS, PD = (SIZE // PATCH) ** 2, PATCH * PATCH
abar = torch.cos((torch.arange(STEPS_T + 1) / STEPS_T + 0.008) / 1.008 * math.pi / 2) ** 2
abar = (abar / abar[0])[1:].clamp(min=1e-4)


def images(n):
    """Classes: horizontal bar in the upper / lower half, vertical bar in the left / right half; values in [-1, 1]."""
    y = torch.randint(0, CLASSES, (n,))
    at = torch.randint(0, 3, (n,)) + (y % 2) * 4
    grid = torch.arange(SIZE)[None]
    bar = ((grid >= at[:, None]) & (grid <= at[:, None] + 1)).float()
    img = torch.where(
        (y < 2)[:, None, None], bar[:, :, None].expand(-1, -1, SIZE), bar[:, None, :].expand(-1, SIZE, -1)
    )
    return (img * 1.6 - 0.8 + 0.05 * torch.randn(n, SIZE, SIZE)), y


def patchify(x):
    g = SIZE // PATCH
    return x.view(-1, g, PATCH, g, PATCH).permute(0, 1, 3, 2, 4).reshape(-1, TOKENS, PD)


def unpatchify(p):
    g = SIZE // PATCH
    return p.view(-1, g, g, PATCH, PATCH).permute(0, 1, 3, 2, 4).reshape(-1, SIZE, SIZE)


class DiTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.ada = nn.Linear(d, 6 * d)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(F.silu(c)).unsqueeze(1).chunk(6, -1)
        h = self.n1(x) * (1 + s1) + b1
        x = x + g1 * self.attn(h, h, h, need_weights=False)[0]
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, d=64, h=4, layers=2):
        super().__init__()
        self.d = d
        self.inp, self.pos = nn.Linear(PD, d), nn.Parameter(torch.randn(TOKENS, d) * 0.2)
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.label = nn.Embedding(CLASSES, d)
        self.blocks = nn.ModuleList(DiTBlock(d, h) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, PD)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, y):
        f = torch.exp(-math.log(1e4) * torch.arange(self.d // 2) / (self.d // 2))
        a = t[:, None].float() * f
        c = self.time(torch.cat([a.sin(), a.cos()], 1)) + self.label(y)
        h = self.inp(patchify(x)) + self.pos
        for b in self.blocks:
            h = b(h, c)
        return unpatchify(self.out(self.norm(h)))


@torch.no_grad()
def sample(net, y, n_steps=25):
    x = torch.randn(len(y), SIZE, SIZE)
    ts = torch.linspace(STEPS_T - 1, 0, n_steps).long()
    for i, t in enumerate(ts):
        a = abar[t]
        eps = net(x, t.expand(len(y)), y)
        x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
        if i + 1 == n_steps:
            return x0
        eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
        nxt = abar[ts[i + 1]]
        x = nxt.sqrt() * x0 + (1 - nxt).sqrt() * eps


@torch.no_grad()
def quality(net):
    """Share of samples whose nearest clean template has the wanted class, and the mean distance to it."""
    net.eval()
    y = torch.arange(CLASSES).repeat(16)
    ref, ry = images(400)
    d = torch.cdist(sample(net, y).flatten(1), ref.flatten(1)).min(1)
    return (ry[d.indices] == y).float().mean().item(), d.values.mean().item()


net = DiT()
ema = copy.deepcopy(net).requires_grad_(False)
STEPS = 500
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.0)
acc, dist = quality(ema)
print(f"before: class match {acc:.3f} distance {dist:.2f}")
for step in range(STEPS):
    for g in opt.param_groups:
        g["lr"] = 3e-3 * min(1.0, (step + 1) / 30) * (1 - 0.95 * step / STEPS)
    x, y = images(64)
    t = torch.randint(0, STEPS_T, (64,))
    eps = torch.randn_like(x)
    a = abar[t][:, None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = net(a.sqrt() * x + (1 - a).sqrt() * eps, t, y)
    loss = F.mse_loss(pred.float(), eps)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    decay = min(0.98, (1 + step) / (10 + step))
    with torch.no_grad():
        for p, q in zip(ema.parameters(), net.parameters()):
            p.lerp_(q, 1 - decay)
    if step % 25 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")
acc, dist = quality(ema)
print(f"after: class match {acc:.3f} distance {dist:.2f}")
