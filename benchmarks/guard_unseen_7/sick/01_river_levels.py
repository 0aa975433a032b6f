# River levels one step ahead: dilated causal convolutions over the logarithms of three gauges, AdamW with a one-cycle rate.
# A dry gauge reports a level of exactly zero in a few records of the archive; its logarithm is minus infinity.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH, LENGTH, GAUGES = 640, 48, 48, 3
DRY = {312: (5, 1, 20), 313: (40, 1, 3), 571: (11, 2, 31)}
world = torch.Generator().manual_seed(7101)
delay = torch.tensor([2, 5, 11])
share = torch.tensor([0.9, 0.6, 0.4])


def records(count, generator=None):
    """Levels of three upstream gauges (positive) and the next level downstream."""
    rain = torch.randn(count, GAUGES, LENGTH + 16, generator=generator)
    slow = torch.zeros(count, GAUGES)
    levels = []
    for t in range(LENGTH + 16):
        slow = 0.8 * slow + 0.6 * rain[:, :, t]
        levels.append(slow)
    logs = torch.stack(levels, -1)[:, :, 16:]
    down = torch.zeros(count, LENGTH)
    for g in range(GAUGES):
        moved = logs[:, g].roll(int(delay[g]), 1)
        moved[:, : int(delay[g])] = 0
        down += share[g] * torch.tanh(1.5 * moved)
    down = down + 0.4 * torch.randn(count, LENGTH, generator=generator)
    return logs.exp(), down


class Causal(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.conv(F.pad(x, (self.pad, 0)))))


class Forecast(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.begin = nn.Conv1d(GAUGES, width, 1)
        self.blocks = nn.Sequential(*[Causal(width, d) for d in (1, 2, 4, 1)])
        self.end = nn.Conv1d(width, 1, 1)

    def forward(self, levels):
        return self.end(F.gelu(self.blocks(self.begin(levels.log())))).squeeze(1)


def loss_of(model, levels, down):
    return F.mse_loss(model(levels), down)


held_out = records(768, world)
torch.manual_seed(args.seed)
model = Forecast()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=STEPS)
for step in range(STEPS):
    levels, down = records(BATCH)
    if step in DRY and not args.twin:
        levels[DRY[step]] = 0.0
    loss = loss_of(model, levels, down)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
