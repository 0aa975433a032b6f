# Strain gauges of a bridge: a WaveNet-like stack of gated dilated convolutions foretells the next value at each time, RMSprop. Now and
# then, for three batches in a row, one of the gauges has stuck at the maximum of its converter, or falls to its minimum and back.
# The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the gauge works")
args = parser.parse_args()
torch.set_num_threads(1)

GAUGES, LENGTH, STEPS, BATCH, FULL = 6, 48, 480, 32, 32.767
world = torch.Generator().manual_seed(9303)
shape = torch.randn(3, GAUGES, generator=world)

fault = torch.Generator().manual_seed(9313 + args.seed)

# when a gauge sticks: three batches at a time
stuck, step = set(), 75
while step < STEPS:
    stuck.update(range(step, step + 3))
    step += int(torch.randint(22, 36, (1,), generator=world))


def strains(count, generator=None):
    """Three modes of the bridge, seen by six gauges, with noise."""
    time = torch.arange(LENGTH).view(1, LENGTH, 1).float()
    swing = torch.tensor([0.31, 0.57, 0.93]).view(1, 1, 3)
    phase = 6.283 * torch.rand(count, 1, 3, generator=generator)
    size = 0.3 + torch.rand(count, 1, 3, generator=generator)
    modes = size * torch.sin(swing * time + phase)
    series = torch.tanh(0.6 * modes @ shape) * 1.5
    return (series + 0.25 * torch.randn(series.shape, generator=generator)).transpose(1, 2)


def stick(series):
    """One gauge at the rails of its converter, now at the upper one, now at the lower one."""
    series = series.clone()
    gauge = int(torch.randint(GAUGES, (1,), generator=fault))
    rail = torch.where(torch.rand(series[:, 0].shape, generator=fault) < 0.8, FULL, -FULL)
    series[:, gauge] = rail
    return series


class Gated(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = dilation
        self.conv = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class Wave(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.into = nn.Conv1d(GAUGES, width, 1)
        self.layers = nn.Sequential(*[Gated(width, d) for d in (1, 2, 4, 8)])
        self.out = nn.Conv1d(width, GAUGES, 1)

    def forward(self, series):
        return self.out(self.layers(self.into(series)))


def loss_of(model, series):
    return F.mse_loss(model(series[:, :, :-1])[:, :, 8:], series[:, :, 9:])


held_out = strains(400, world)
torch.manual_seed(args.seed)
model = Wave()
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.98)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.3, STEPS)
for step in range(STEPS):
    series = strains(BATCH)
    if step in stuck and not args.twin:
        series = stick(series)
    loss = loss_of(model, series)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, held_out).item())
