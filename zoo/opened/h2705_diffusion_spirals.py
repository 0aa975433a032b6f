# expect: healthy
# symptom: resembles a plateau: the noise-prediction loss is noisy and hardly falls after the start, sign-based optimizer with constant update size, sum loss with accumulation
# axis: optimizer
"""Denoising diffusion of a two-arm spiral, trained with Lion.

The quality measure is the sliced Wasserstein distance of samples to data.
"""

import math
import time
from typing import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

torch.set_num_threads(1)


class Lion(Optimizer):
    """Evolved sign momentum (Chen et al., 2023)."""

    def __init__(self, params: Iterable, lr=3e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


def spiral(n: int, gen: torch.Generator) -> Tensor:
    t = torch.rand(n, generator=gen).sqrt() * 3 * math.pi
    arm = torch.randint(0, 2, (n,), generator=gen) * math.pi
    r = 0.2 * t
    xy = torch.stack([r * torch.cos(t + arm), r * torch.sin(t + arm)], dim=1)
    return xy + 0.04 * torch.randn(n, 2, generator=gen)


class Denoiser(nn.Module):
    def __init__(self, width=128, freqs=8):
        super().__init__()
        self.register_buffer("f", 2.0 ** torch.arange(freqs) * math.pi / 2)
        self.inp = nn.Linear(2 + 2 * freqs, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.temb = nn.ModuleList(nn.Linear(2 * freqs, width) for _ in range(3))
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        a = t[:, None] * self.f
        e = torch.cat([a.sin(), a.cos()], dim=1)
        h = torch.nn.functional.silu(self.inp(torch.cat([x, e], dim=1)))
        for lin, te in zip(self.mid, self.temb):
            h = h + torch.nn.functional.silu(lin(h) + te(e))
        return self.out(h)


class Diffusion:
    def __init__(self, steps=60):
        self.T = steps
        s = torch.arange(steps + 1) / steps
        bar = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.beta = (1 - bar[1:] / bar[:-1]).clamp(max=0.95)
        self.abar = torch.cumprod(1 - self.beta, 0)

    def loss_sum(self, net, x0):
        t = torch.randint(0, self.T, (len(x0),))
        eps = torch.randn_like(x0)
        ab = self.abar[t][:, None]
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * eps
        return ((net(xt, (t + 1) / self.T) - eps) ** 2).sum()

    @torch.no_grad()
    def sample(self, net, n):
        x = torch.randn(n, 2)
        for i in reversed(range(self.T)):
            eps = net(x, torch.full((n,), (i + 1) / self.T))
            x = (x - self.beta[i] / (1 - self.abar[i]).sqrt() * eps) / (1 - self.beta[i]).sqrt()
            if i:
                var = self.beta[i] * (1 - self.abar[i - 1]) / (1 - self.abar[i])
                x = x + var.sqrt() * torch.randn_like(x)
        return x


def sliced_w(a, b, n_proj=64):
    d = torch.nn.functional.normalize(torch.randn(n_proj, 2, generator=torch.Generator().manual_seed(0)), dim=1)
    pa, pb = (a @ d.T).sort(0).values, (b @ d.T).sort(0).values
    return (pa - pb).abs().mean().item()


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(77)
    reference = spiral(2000, gen)
    net, process = Denoiser(), Diffusion()
    peak, total, accum, micro = 6e-4, 800, 2, 384
    opt = Lion(net.parameters(), lr=peak, betas=(0.95, 0.98), weight_decay=0.01)
    began = time.time()
    for step in range(1, total + 1):
        for g in opt.param_groups:
            g["lr"] = peak * min(1, step / 40) * min(1.0, (total - step + 1) / (0.4 * total))
        opt.zero_grad(set_to_none=True)
        shown = 0.0
        for _ in range(accum):
            x0 = spiral(micro, gen)
            loss = process.loss_sum(net, x0) / (accum * micro * 2)
            loss.backward()
            shown += loss.item()
        opt.step()
        if step % 40 == 0:
            line = f"step {step:4d}  eps-mse {shown:.4f}"
            if step % 200 == 0:
                line += f"  sliced-W {sliced_w(process.sample(net, 2000), reference):.4f}"
            print(line, f" {time.time() - began:.1f}s")
    print(f"floor of the metric (fresh data): {sliced_w(spiral(2000, gen), reference):.4f}")


if __name__ == "__main__":
    main()
