# expect: sick
# symptom: diffusion loss falls, then stays clearly above what the model size should give; samples are poor
# axis: model
# cause: the residual blocks are kept in a plain Python list, so they are not registered; model.parameters() does not contain them and the optimizer never trains them (they stay at random init)
# says: (python )?list\b.{0,80}(module|regist|param|block|layer)|modulelist|(not|never|un|n't)[- ]?(been )?regist\w*|(block|layer|param\w*|weight)s?.{0,100}(not|never|missing|absent|n't|outside|unregistered).{0,40}(optimi[sz]er|train|updat|regist|parameters\(\)|state_dict)|(optimi[sz]er|parameters\(\)).{0,80}(lacks?|miss\w*|without|does not (contain|include|hold|see|cover)|only (sees|has|holds|covers|contains)|not (given|passed|include))|(random|initial)[- ](init|weights).{0,60}(never|stay|remain|untrained|not)
# onset_step: 1
# fix: nn.ModuleList(blocks)
# mended: the list of blocks is wrapped in nn.ModuleList
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(30)
rng = np.random.default_rng(30)

LENGTH, T = 32, 100
KINDS = 4


def curves(n):
    """1-D signals of four families, scaled to about [-1, 1]"""
    k = rng.integers(0, KINDS, n)
    t = np.linspace(0, 1, LENGTH)[None]
    ph, f = rng.uniform(0, 1, (n, 1)), rng.uniform(1.5, 3.0, (n, 1))
    fam = np.stack(
        [
            np.sin(2 * np.pi * (f * t + ph)),
            np.sign(np.sin(2 * np.pi * (f * t + ph))),
            2 * ((f * t + ph) % 1) - 1,
            np.exp(-((t - 0.2 - 0.6 * ph) ** 2) / 0.01) * 2 - 1,
        ]
    )
    x = fam[k, np.arange(n)] + rng.normal(0, 0.01, (n, LENGTH))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(k)


class ResBlock(nn.Module):
    def __init__(self, c, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, c), nn.GroupNorm(4, c)
        self.conv1, self.conv2 = nn.Conv1d(c, c, 5, padding=2), nn.Conv1d(c, c, 5, padding=2)
        self.film = nn.Linear(emb, 2 * c)

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x)))
        s, b = self.film(e).unsqueeze(-1).chunk(2, 1)
        h = self.norm2(h) * (1 + s) + b
        return x + self.conv2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, c=40, emb=64, depth=4):
        super().__init__()
        self.emb = emb
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.kind = nn.Embedding(KINDS, emb)
        self.inp = nn.Conv1d(1, c, 5, padding=2)
        blocks = [ResBlock(c, emb) for _ in range(depth)]
        self.blocks = nn.ModuleList(blocks) if MENDED else blocks
        self.out = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv1d(c, 1, 5, padding=2))

    def forward(self, x, t, k):
        half = self.emb // 2
        fr = torch.exp(-math.log(1000) * torch.arange(half) / half)
        a = t.float().unsqueeze(1) * fr
        e = self.time(torch.cat([a.sin(), a.cos()], 1)) + self.kind(k)
        h = self.inp(x.unsqueeze(1))
        for blk in self.blocks:
            h = blk(h, e)
        return self.out(h).squeeze(1)


def main():
    betas = torch.linspace(1e-3, 0.08, T)
    abar = torch.cumprod(1 - betas, 0)
    data, kind = curves(4000)
    held, held_k = curves(512)
    held_t = torch.randint(0, T, (512,))
    held_eps = torch.randn(512, LENGTH)
    net = Denoiser()
    print(f"{sum(p.numel() for p in net.parameters()) / 1e3:.1f}k parameters")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    steps = 600
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, eta_min=1e-4)
    run, t0 = None, time.time()
    for step in range(1, steps + 1):
        i = torch.randint(0, len(data), (64,))
        t = torch.randint(0, T, (64,))
        eps = torch.randn(64, LENGTH)
        ab = abar[t].unsqueeze(1)
        loss = F.mse_loss(net(ab.sqrt() * data[i] + (1 - ab).sqrt() * eps, t, kind[i]), eps)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        run = loss.item() if run is None else 0.95 * run + 0.05 * loss.item()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} smooth {run:.4f} t {time.time() - t0:.1f}s", flush=True)
    with torch.no_grad():
        ab = abar[held_t].unsqueeze(1)
        ev = F.mse_loss(net(ab.sqrt() * held + (1 - ab).sqrt() * held_eps, held_t, held_k), held_eps).item()
    print(f"held-out noise error {ev:.4f}")


main()
