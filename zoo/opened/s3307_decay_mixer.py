# expect: sick
# symptom: loss falls nicely on short windows, then becomes NaN as soon as the long windows start
# axis: model
# cause: the scan divides by cumulative decay powers a**t, which underflow to 0 on long windows: inf, then NaN
# says: (power|decay|\*\* ?t|pw|cumul|scan).{0,60}(underflow|zero|\b0\b)|(divi|underfl)\w*.{0,50}(power|decay|pw)
# onset_step: 160
# fix: build the scan from pairwise decays a**(t-s) with s<=t instead of dividing by a**s
# mended: the script applies that change if the environment has MENDED=1
"""Leaky-memory sequence model for flow sensors: short windows first, long windows later."""

import math
import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
PAIRWISE = os.environ.get("MENDED") == "1"

SHORT, LONG, SWITCH, STEPS, BATCH = 48, 240, 160, 260, 8


class SensorStream:
    """Pulses with a gate channel; the target is a squashed leaky sum of the gated pulses."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def batch(self, n, length):
        pulse = torch.randn(n, length, generator=self.g)
        gate = (torch.rand(n, length, generator=self.g) < 0.4).float()
        temp = torch.sin(torch.arange(length) / 9.0 + 6.28 * torch.rand(n, 1, generator=self.g))
        x = torch.stack([pulse, gate, temp], -1)
        acc, ys = torch.zeros(n), []
        for t in range(length):
            acc = 0.9 * acc + pulse[:, t] * gate[:, t]
            ys.append(torch.tanh(0.6 * acc + 0.3 * temp[:, t]))
        return x, torch.stack(ys, 1)


def leaky_scan(u, a):
    """h_t = a * h_{t-1} + u_t for all t at once; u is [B, T, D], a is [D]."""
    t = torch.arange(u.shape[1], device=u.device)
    if PAIRWISE:
        lag = t[:, None] - t[None, :]
        w = torch.exp(lag.clamp(min=0)[..., None] * a.log()) * (lag >= 0)[..., None]
        return torch.einsum("tsd,bsd->btd", w, u)
    pw = a[None, :] ** t[:, None]
    return pw * torch.cumsum(u / pw, dim=1)


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inp = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        half_life = torch.linspace(math.log(1.5), math.log(40.0), width).exp()
        a = 0.5 ** (1.0 / half_life)
        self.decay = nn.Parameter(torch.log(a / (1 - a)))

    def forward(self, x):
        z = self.norm(x)
        u = self.inp(z) * torch.sigmoid(self.gate(z))
        return x + self.out(F.silu(leaky_scan(u, torch.sigmoid(self.decay)) * 0.3))


class FlowModel(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x):
        h = self.embed(x)
        for b in self.blocks:
            h = b(h)
        return self.head(h).squeeze(-1)


def evaluate(model, length):
    x, y = SensorStream(999).batch(8, length)
    with torch.no_grad():
        return F.mse_loss(model(x), y).item() / y.var().item()


def main():
    stream = SensorStream(3)
    model = FlowModel()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    for step in range(STEPS):
        length = SHORT if step < SWITCH else LONG
        x, y = stream.batch(BATCH, length)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} window {length:3d} loss {loss.item():.4f} gnorm {norm.item():.3f}", flush=True)
    print(f"final unexplained variance short {evaluate(model, SHORT):.4f} long {evaluate(model, LONG):.4f}")


if __name__ == "__main__":
    main()
