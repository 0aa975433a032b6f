# expect: healthy
# symptom: at the first step nearly all gradients are exactly zero and the output is 0: adaLN-zero (gates and output layer start at zero, as in DiT); labels are dropped at random (classifier-free guidance), no attention mask, a copy that gets no gradients (EMA) is used for sampling
# axis: none
# mended: none
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)
rng = np.random.default_rng(14)
SIZE, PATCH, NCLS, BATCH, STEPS, TMAX = 9, 3, 4, 32, 450, 200


def sprites(n):
    y = rng.integers(0, NCLS, n)
    img = -np.ones((n, SIZE, SIZE), dtype=np.float32)
    for i, c in enumerate(y):
        r, s = rng.integers(0, 3, 2)
        k = 5
        if c == 0:
            img[i, r : r + k, s : s + k] = 1
        elif c == 1:
            img[i, r : r + k, s + k // 2] = img[i, r + k // 2, s : s + k] = 1
        elif c == 2:
            img[i, r : r + 2, s : s + k + 1] = 1
        else:
            img[i, r : r + k, s : s + k] = 1
            img[i, r + 1 : r + k - 1, s + 1 : s + k - 1] = -1
    return torch.tensor(img)[:, None], torch.tensor(y)


ab = torch.cos((torch.arange(TMAX + 1) / TMAX + 0.008) / 1.008 * math.pi / 2) ** 2
ALPHA = (ab / ab[0]).clamp(1e-4, 0.9999)[1:]


def patchify(x):
    return F.unfold(x, PATCH, stride=PATCH).transpose(1, 2)


def unpatchify(p):
    return F.fold(p.transpose(1, 2), SIZE, PATCH, stride=PATCH)


class Block(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))
        nn.init.zeros_(self.ada[1].weight)
        nn.init.zeros_(self.ada[1].bias)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(c)[:, None].chunk(6, -1)
        h = self.n1(x) * (1 + s1) + b1
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        x = x + g1 * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, d=64, depth=3):
        super().__init__()
        self.inp = nn.Linear(PATCH**2, d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIZE // PATCH) ** 2, d))
        self.label = nn.Embedding(NCLS + 1, d)
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.register_buffer("freq", torch.exp(-math.log(1000) * torch.arange(d // 2) / (d // 2)))
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.out = nn.Linear(d, PATCH**2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, y):
        e = t[:, None].float() * self.freq
        c = self.time(torch.cat([e.sin(), e.cos()], -1)) + self.label(y)
        h = self.inp(patchify(x)) + self.pos
        for b in self.blocks:
            h = b(h, c)
        return unpatchify(self.out(F.layer_norm(h, h.shape[-1:])))


@torch.no_grad()
def sample(model, y, guidance=2.0, n_steps=20):
    x = torch.randn(len(y), 1, SIZE, SIZE)
    ts = torch.linspace(TMAX - 1, 0, n_steps + 1).long()
    null = torch.full_like(y, NCLS)
    for a, b in zip(ts[:-1], ts[1:]):
        t = a.expand(len(y))
        free = model(x, t, null)
        x0 = (free + guidance * (model(x, t, y) - free)).clamp(-1, 1)
        sa, ss = ALPHA[a].sqrt(), (1 - ALPHA[a]).sqrt()
        eps = (x - sa * x0) / ss
        x = ALPHA[b].sqrt() * x0 + (1 - ALPHA[b]).sqrt() * eps
    return x


data, labels = sprites(3000)
model = DiT()
ema = copy.deepcopy(model).requires_grad_(False).eval()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
t0 = time.time()
for step in range(STEPS):
    for g in opt.param_groups:
        g["lr"] = 2e-3 * min(1, (step + 1) / 50)
    k = torch.randint(0, len(data), (BATCH,))
    x, y = data[k], labels[k].clone()
    y[torch.rand(BATCH) < 0.15] = NCLS
    t = torch.randint(0, TMAX, (BATCH,))
    sa, ss = ALPHA[t].sqrt().view(-1, 1, 1, 1), (1 - ALPHA[t]).sqrt().view(-1, 1, 1, 1)
    eps = torch.randn_like(x)
    loss = F.mse_loss(model(sa * x + ss * eps, t, y), x)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    decay = min(0.995, (1 + step) / (10 + step))
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 1 - decay)
    if step % 15 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")
    if step % 150 == 149:
        with torch.no_grad():
            x, y = data[:256], labels[:256]
            noisy = [ALPHA[q].sqrt() * x + (1 - ALPHA[q]).sqrt() * torch.randn_like(x) for q in (20, 60)]
            err = [F.mse_loss(ema(z, torch.full((256,), q), y), x).item() for z, q in zip(noisy, (20, 60))]
        print(f"== step {step} ema denoising error t=20 {err[0]:.4f} t=60 {err[1]:.4f} ({time.time() - t0:.1f}s)")
s = sample(ema, torch.arange(NCLS))
print(
    "\n".join(
        "  ".join("".join("#" if v > 0 else "." for v in row) for row in rows) for rows in s[:, 0].transpose(0, 1)
    )
)
