# expect: sick
# symptom: the loss hardly comes down, jumps about, then diverges to NaN although lr, model and data are ordinary
# axis: precision
# cause: the ring all-reduce sums the four workers' quantised gradients in int8, so sums beyond 127 wrap around (integer overflow) and the largest gradient entries come out with the wrong sign
# says: (int8|8.?bit|quanti[sz]|compress|integer).*(overflow|wrap|saturat|exceed|beyond|range|accumulat|sum)|(overflow|wrap).*(int8|8.?bit|quanti[sz]|all.?reduce|ring|integer)
# onset_step: 1
# fix: accumulate the ring sum in int32
# mended: yes
"""Forecast household load with a dilated conv net, four workers, 8-bit gradient exchange."""

import os
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(2024)

MENDED = os.environ.get("MENDED") == "1"
WORLD = 4
LOCAL_BATCH = 16
HISTORY, HORIZON = 96, 12


# ---------------------------------------------------------------- data
def household_load(n_homes=60, hours=24 * 60, seed=5):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    base = 0.6 + torch.rand(n_homes, 1, generator=g)
    morning = torch.rand(n_homes, 1, generator=g) * 0.8
    evening = 0.6 + torch.rand(n_homes, 1, generator=g)
    phase = torch.rand(n_homes, 1, generator=g) * 2
    day = 2 * math.pi * (t[None] + phase) / 24
    y = base + morning * torch.cos(2 * day) + evening * torch.cos(day - 4.5)
    weekend = ((t // 24) % 7 >= 5).float()
    y = y + 0.4 * weekend
    noise = torch.zeros(n_homes, hours)
    eps = 0.12 * torch.randn(n_homes, hours, generator=g)
    for k in range(1, hours):
        noise[:, k] = 0.8 * noise[:, k - 1] + eps[:, k]
    return y + noise


class WindowSampler:
    def __init__(self, series, rank, world, seed):
        self.series = series[rank::world]
        self.gen = torch.Generator().manual_seed(seed + rank)

    def next(self, n):
        homes = torch.randint(0, self.series.shape[0], (n,), generator=self.gen)
        start = torch.randint(0, self.series.shape[1] - HISTORY - HORIZON, (n,), generator=self.gen)
        win = torch.stack([self.series[h, s : s + HISTORY + HORIZON] for h, s in zip(homes, start)])
        return win[:, :HISTORY], win[:, HISTORY:]


# ---------------------------------------------------------------- model
class DilatedForecaster(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.stem = nn.Conv1d(1, ch, 1)
        self.convs = nn.ModuleList(nn.Conv1d(ch, ch, 2, dilation=2**i) for i in range(6))
        self.norms = nn.ModuleList(nn.GroupNorm(4, ch) for _ in range(6))
        self.head = nn.Linear(ch, HORIZON)

    def forward(self, x):
        level = x.mean(1, keepdim=True)
        h = self.stem((x - level).unsqueeze(1))
        for conv, norm in zip(self.convs, self.norms):
            pad = conv.dilation[0]
            h = h + F.gelu(norm(conv(F.pad(h, (pad, 0)))))
        return self.head(h[:, :, -1]) + level


# ---------------------------------------------------------------- communication
def encode(grads):
    """Quantise each worker's tensor with a scale common to the group."""
    scale = torch.stack([g.abs().max() for g in grads]).max().clamp_min(1e-12)
    codes = [torch.round(g / scale * 127).to(torch.int8) for g in grads]
    return codes, scale


def ring_reduce(codes):
    total = codes[0].to(torch.int32) if MENDED else codes[0].clone()
    for piece in codes[1:]:
        total += piece
    return total


def all_reduce_mean(per_worker):
    out = []
    for grads in zip(*per_worker):
        codes, scale = encode(grads)
        out.append(ring_reduce(codes).float() * (scale / 127) / WORLD)
    return out


def main():
    series = household_load()
    train, valid = series[:, : 24 * 50], series[:, 24 * 50 :]
    samplers = [WindowSampler(train, r, WORLD, seed=77) for r in range(WORLD)]
    vx, vy = WindowSampler(valid, 0, 1, seed=500).next(256)

    net = DilatedForecaster()
    params = list(net.parameters())
    opt = torch.optim.SGD(params, lr=0.03, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=300, pct_start=0.1)

    for it in range(1, 301):
        per_worker, losses = [], []
        for s in samplers:
            x, y = s.next(LOCAL_BATCH)
            loss = F.mse_loss(net(x), y)
            per_worker.append(torch.autograd.grad(loss, params))
            losses.append(loss.item())
        for p, g in zip(params, all_reduce_mean(per_worker)):
            p.grad = g
        opt.step()
        sched.step()
        if it % 20 == 0 or it == 1:
            with torch.no_grad():
                val = F.mse_loss(net(vx), vy).item()
            print(
                f"it {it:4d} | train mse {sum(losses) / WORLD:.4f} | valid mse {val:.4f} | lr {sched.get_last_lr()[0]:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
