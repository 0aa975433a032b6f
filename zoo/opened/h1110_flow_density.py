# expect: healthy
# symptom: loss starts above 1000, gradient norms are in the hundreds to thousands, the loss becomes negative and goes on falling to about -20 (summed negative log density of continuous data)
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
DIM = 32


def detector_pulses(n, seed):
    """Digitised pulses: few hidden factors, small electronic noise, physical units."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, DIM)
    t0, rise, fall = rng.uniform(0.1, 0.4, (n, 1)), rng.uniform(0.03, 0.1, (n, 1)), rng.uniform(0.15, 0.5, (n, 1))
    amp = rng.gamma(6, 0.5, (n, 1))
    s = np.clip(t - t0, 0, None)
    pulse = amp * (np.exp(-s / fall) - np.exp(-s / rise))
    return torch.tensor(pulse + rng.normal(0, 0.004, pulse.shape), dtype=torch.float32)


class Coupling(nn.Module):
    def __init__(self, mask, hidden=96):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(
            nn.Linear(DIM, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 2 * DIM)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        s, b = self.net(x * self.mask).chunk(2, -1)
        s = 2 * torch.tanh(s / 2) * (1 - self.mask)
        return x * s.exp() + b * (1 - self.mask), s.sum(-1)


class ActNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.zeros(DIM)), nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        return (x - self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Flow(nn.Module):
    def __init__(self, depth=8):
        super().__init__()
        layers = []
        for k in range(depth):
            mask = ((torch.arange(DIM) // (2 ** (k // 2 % 3))) % 2 == k % 2).float()
            layers += [ActNorm(), Coupling(mask)]
        self.layers = nn.ModuleList(layers)

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, ld = layer(x)
            total = total + ld
        return total - 0.5 * (x**2).sum(-1) - 0.5 * DIM * math.log(2 * math.pi)


def main():
    torch.manual_seed(0)
    x, held = detector_pulses(20000, 1) * 10, detector_pulses(2000, 2) * 10
    flow = Flow()
    steps = 700
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=steps, pct_start=0.2)
    for step in range(steps):
        b = x[torch.randint(0, len(x), (128,))]
        b = b + 0.01 * torch.randn_like(b)
        loss = -flow.log_prob(b).mean()
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(flow.parameters(), 5000.0)
        opt.step()
        sched.step()
        if step % 35 == 0:
            print(f"step {step:4d} nll {loss.item():9.3f} gnorm {gn.item():.1f}", flush=True)
    with torch.no_grad():
        print(f"held-out nll {-flow.log_prob(held).mean().item():.3f}")


if __name__ == "__main__":
    main()
