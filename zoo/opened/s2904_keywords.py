# expect: sick
# symptom: the loss is nan right after the first optimizer step
# axis: precision
# cause: the whole model is in float16 and Adam keeps its default eps=1e-8, which rounds to zero in half precision while the squared gradients underflow, so the update divides by zero (0/0)
# says: (?=.*(half|fp16|float16|16.?bit|\.half\(\)))(?=.*(\beps\b|epsilon|1e-0?8|adam|exp_avg_sq|second moment|squared gradient|optimi[sz]er state|variance))(?=.*(zero|underflow|\b0\b|0/0|too small|round|flush|divi|denominator|master|float32|fp32|\beps\b))
# onset_step: 1
# fix: give Adam an eps that half precision can hold (eps=1e-4), or keep the weights in float32 and use autocast
# mended: yes
"""Keyword spotting on log-mel patches: residual MLP-mixer style network for a small board."""

import os
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
N_WORDS, N_FRAMES, N_MEL = 8, 24, 20


def synth_words(n, seed):
    """Each word is a sequence of three formant-like tracks; speed, pitch and level vary by speaker."""
    book = torch.Generator().manual_seed(314)
    start = torch.rand(N_WORDS, 3, generator=book) * (N_MEL - 6) + 3
    slope = (torch.rand(N_WORDS, 3, generator=book) - 0.5) * 14
    wob = torch.rand(N_WORDS, 3, generator=book) * 2.0
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, N_WORDS, (n,), generator=g)
    t = torch.linspace(0, 1, N_FRAMES)
    speed = 0.85 + 0.3 * torch.rand(n, 1, 1, generator=g)
    shift = torch.randn(n, 1, 1, generator=g) * 0.7
    tt = (t * speed).clamp(max=1.0)
    track = start[y].unsqueeze(-1) + slope[y].unsqueeze(-1) * tt + shift
    track = track + wob[y].unsqueeze(-1) * torch.sin(2 * math.pi * 1.5 * tt)
    mel = torch.arange(N_MEL).view(1, 1, 1, -1)
    spec = torch.exp(-0.5 * ((mel - track.unsqueeze(-1)) / 1.1) ** 2).sum(1)
    level = 0.6 + 0.8 * torch.rand(n, 1, 1, generator=g)
    spec = spec * level + 0.25 * torch.randn(n, N_FRAMES, N_MEL, generator=g).abs()
    spec = torch.log(spec + 0.05)
    return (spec - spec.mean((1, 2), keepdim=True)) / spec.std((1, 2), keepdim=True), y


class MixerLayer(nn.Module):
    def __init__(self, frames, dim, hidden):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.time = nn.Sequential(nn.Linear(frames, hidden), nn.GELU(), nn.Linear(hidden, frames))
        self.chan = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x):
        x = x + self.time(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.chan(self.n2(x))


class Spotter(nn.Module):
    def __init__(self, dim=40, hidden=64, depth=2):
        super().__init__()
        self.inp = nn.Linear(N_MEL, dim)
        self.layers = nn.ModuleList(MixerLayer(N_FRAMES, dim, hidden) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, N_WORDS)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


@torch.no_grad()
def accuracy(model, x, y, dtype):
    model.eval()
    hits = 0
    for xb, yb in zip(x.split(100), y.split(100)):
        hits += (model(xb.to(dtype)).argmax(-1) == yb).sum().item()
    model.train()
    return hits / len(y)


def main():
    torch.manual_seed(2)
    x, y = synth_words(2400, 10)
    xv, yv = synth_words(400, 11)
    dtype = torch.float16
    model = Spotter().to(dtype)
    print(f"{sum(p.numel() for p in model.parameters())} parameters in {dtype}")
    kwargs = dict(lr=1e-3, betas=(0.9, 0.99))
    if MENDED:
        kwargs["eps"] = 1e-4
    opt = torch.optim.Adam(model.parameters(), **kwargs)
    steps, bs = 450, 32
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 40) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    t0 = time.time()
    order = torch.randperm(len(y))
    for step in range(1, steps + 1):
        k = ((step - 1) * bs) % len(y)
        if k == 0:
            order = torch.randperm(len(y))
        i = order[k : k + bs]
        logits = model(x[i].to(dtype))
        loss = F.cross_entropy(logits.float(), y[i])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0 or step <= 3:
            print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
        if step % 150 == 0:
            print(f"   validation accuracy {accuracy(model, xv, yv, dtype):.3f}")


if __name__ == "__main__":
    main()
