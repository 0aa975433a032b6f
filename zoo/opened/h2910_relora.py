# expect: healthy
# symptom: now and then the low-rank factors are folded into the weights and drawn anew, the Adam state is thrown away and the rate falls to zero, with a bump in the loss
# axis: optimizer
"""High-rank training by successive low-rank updates: copying a mixing reverb.

A sequence model (causal MLP-mixer) learns to emulate a nonlinear audio effect.
Dense weights move only through rank-8 factors which are folded in every
cycle; biases, norms and the in/out layers train directly.
"""

import math
import time
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(40)
LENGTH, HOP, STEPS, CYCLE, WARM = 256, 8, 640, 128, 12


def signals(n, gen):
    """Decaying tones with random onsets, and their image through the effect."""
    t = torch.arange(LENGTH).float()
    x = torch.zeros(n, LENGTH)
    for _ in range(3):
        f = torch.exp(torch.rand(n, 1, generator=gen) * 1.8 - 3.6)
        on = torch.randint(0, LENGTH - 40, (n, 1), generator=gen)
        env = torch.exp(-(t - on).clamp(min=0) / 30) * (t >= on)
        x = x + env * torch.sin(2 * math.pi * f * t) * (0.4 + torch.rand(n, 1, generator=gen))
    y = torch.tanh(1.8 * x)
    echo = torch.zeros_like(y)
    for delay, gain in ((16, 0.6), (40, 0.4), (72, 0.25)):
        echo[:, delay:] += gain * y[:, :-delay]
    return x, y + echo


class Factored(nn.Module):
    def __init__(self, d_out, d_in, rank=8, causal=False):
        super().__init__()
        self.register_buffer("dense", torch.randn(d_out, d_in) * (0.5 / math.sqrt(d_in)))
        self.register_buffer("mask", torch.tril(torch.ones(d_out, d_in)) if causal else torch.ones(1, 1))
        self.u = nn.Parameter(torch.zeros(d_out, rank))
        self.v = nn.Parameter(torch.empty(rank, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.redraw()

    @torch.no_grad()
    def redraw(self):
        self.u.zero_()
        self.v.normal_(0, 1 / math.sqrt(self.v.shape[1]))

    @torch.no_grad()
    def fold(self):
        self.dense += self.u @ self.v
        self.redraw()

    def forward(self, x):
        w = (self.dense + self.u @ self.v) * self.mask
        return nn.functional.linear(x, w, self.bias)


class Mixer(nn.Module):
    def __init__(self, d=64, frames=LENGTH // HOP, depth=3):
        super().__init__()
        self.inp, self.out = nn.Linear(HOP, d), nn.Linear(d, HOP)
        self.time = nn.ModuleList(Factored(frames, frames, causal=True) for _ in range(depth))
        self.chan = nn.ModuleList(nn.ModuleList([Factored(2 * d, d), Factored(d, 2 * d)]) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))

    def forward(self, x):
        h = self.inp(x.unflatten(1, (-1, HOP)))
        for i, (mix, (up, down)) in enumerate(zip(self.time, self.chan)):
            h = h + mix(h.transpose(1, 2)).transpose(1, 2)
            h = h + down(nn.functional.gelu(up(self.norms[i](h))))
        return self.out(h).flatten(1)

    def factored(self):
        return [m for m in self.modules() if isinstance(m, Factored)]


def fresh_adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.99))


def rate(step, peak=4e-3):
    into = step % CYCLE
    envelope = 0.5 * (1 + math.cos(math.pi * step / STEPS))
    return peak * (0.15 + 0.85 * envelope) * min(1.0, (into + 1) / WARM)


def main():
    gen = torch.Generator().manual_seed(41)
    model = Mixer()
    xv, yv = signals(400, torch.Generator().manual_seed(42))
    opt, began = fresh_adam(model), time.time()
    for step in range(STEPS):
        if step and step % CYCLE == 0:
            for m in model.factored():
                m.fold()
            opt = fresh_adam(model)
            print(f"-- step {step}: factors folded, optimizer state dropped")
        opt.param_groups[0]["lr"] = rate(step)
        x, y = signals(64, gen)
        loss = (model(x) - y).square().mean() / y.square().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if (step + 1) % 16 == 0:
            print(f"step {step + 1:4d} error/signal {loss.item():.4f} lr {rate(step):.2e}", flush=True)
        if (step + 1) % 64 == 0:
            with torch.no_grad():
                ev = ((model(xv) - yv).square().mean() / yv.square().mean()).item()
            print(f"   validation {ev:.4f} ({10 * math.log10(1 / ev):.1f} dB, {time.time() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
