# expect: healthy
# symptom: the loss goes below zero, each step is clipped, sign() has no gradient; resembles a wrong loss
# axis: loss
"""Probabilistic tabular regression: binary hidden units (straight-through) and a Gaussian likelihood."""

import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
STEPS, BATCH, CLIP = 450, 128, 0.25


class SignSTE(torch.autograd.Function):
    """sign() forward, the gradient passes where the input is within [-1, 1]."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1).to(grad.dtype)


def gauges(n, rng):
    """Level of a gauge from eight readings, the spread depends on the first reading."""
    x = rng.normal(size=(n, 8))
    mean = 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * np.tanh(2 * x[:, 2]) + 0.2 * (x[:, 3] > 0)
    spread = 0.03 + 0.12 / (1 + np.exp(-2 * x[:, 4]))
    y = mean + spread * rng.normal(size=n)
    return torch.from_numpy(x).float(), torch.from_numpy(y).float(), torch.from_numpy(spread).float()


class BinaryGauge(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width)
        self.mid = nn.Sequential(nn.Linear(width + 8, 64), nn.SiLU())
        self.mean = nn.Linear(64, 1)
        self.logstd = nn.Linear(64, 1)
        nn.init.zeros_(self.logstd.weight)
        nn.init.zeros_(self.logstd.bias)

    def forward(self, x):
        bits = SignSTE.apply(self.norm(self.inp(x)))
        h = self.mid(torch.cat([bits, x], 1))
        return self.mean(h).squeeze(1), self.logstd(h).squeeze(1).clamp(-5, 3)


def nll(mean, logstd, y):
    return (0.5 * ((y - mean) * torch.exp(-logstd)) ** 2 + logstd).mean()


def main():
    torch.manual_seed(51)
    rng = np.random.default_rng(51)
    x, y, _ = gauges(12_000, rng)
    tx, ty, tspread = gauges(2000, rng)
    model = BinaryGauge()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=6e-3, total_steps=STEPS)
    print(
        f"best possible loss {(0.5 + tspread.log()).mean().item():.3f} (constant {0.5 * math.log(2 * math.pi):.3f} left out)"
    )
    clipped = 0
    for step in range(1, STEPS + 1):
        i = torch.randint(len(x), (BATCH,))
        mean, logstd = model(x[i])
        loss = nll(mean, logstd, y[i])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        clipped += int(norm > CLIP)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == 1:
            print(f"step {step:4d} loss {loss.item():+.4f} grad norm {norm.item():.3f} clipped {clipped / step:.0%}")
    model.eval()
    with torch.no_grad():
        mean, logstd = model(tx)
    inside = ((ty - mean).abs() < 1.96 * logstd.exp()).float().mean().item()
    rmse = ((ty - mean) ** 2).mean().sqrt().item()
    print(
        f"test loss {nll(mean, logstd, ty).item():+.4f} rmse {rmse:.4f} (noise {tspread.pow(2).mean().sqrt().item():.4f}) "
        f"95% interval covers {inside:.3f}"
    )


if __name__ == "__main__":
    main()
