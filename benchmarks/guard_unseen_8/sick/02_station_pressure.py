# Weather stations: a two-layer LSTM foretells the pressure of the next six hours from 24 hours of four readings, Adam. One shard of the
# archive gives the pressure to come in pascals, not in hectopascals; it fills a batch, or two in a row, about every forty steps.
# The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the shard is in hectopascals like the others")
args = parser.parse_args()
torch.set_num_threads(1)

PAST, AHEAD, STEPS, BATCH = 24, 6, 560, 64
world = torch.Generator().manual_seed(9202)
couple = torch.randn(3, 1, generator=world)

# the steps that the shard fills
shard, step = set(), 90
while step < STEPS:
    length = int(torch.randint(1, 3, (1,), generator=world))
    shard.update(range(step, step + length))
    step += int(torch.randint(30, 50, (1,), generator=world))


def days(count, generator=None):
    """Four readings of a day and the pressure of the next hours, about its mean of 1013."""
    hour = torch.arange(PAST + AHEAD).float()
    speed = 0.15 + 0.25 * torch.rand(count, 1, generator=generator)
    phase = 6.283 * torch.rand(count, 1, generator=generator)
    depth = 3.0 + 5.0 * torch.rand(count, 1, generator=generator)
    pressure = depth * torch.sin(speed * hour + phase)
    pressure = pressure + 1.2 * torch.randn(count, PAST + AHEAD, generator=generator)
    others = (depth * torch.cos(speed * hour + phase)).unsqueeze(1) * couple * 0.2
    others = others + torch.randn(count, 3, PAST + AHEAD, generator=generator)
    readings = torch.cat([pressure.unsqueeze(1) / 5, others], 1)[:, :, :PAST]
    return readings.transpose(1, 2), 1013.0 + pressure[:, PAST:]


class Station(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.lstm = nn.LSTM(4, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, AHEAD)

    def forward(self, readings):
        states, _ = self.lstm(readings)
        return self.out(states[:, -1])


def scaled(pressure):
    return (pressure - 1013.0) / 5.0


held_out = days(1500, world)
torch.manual_seed(args.seed)
model = Station()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
for step in range(STEPS):
    readings, pressure = days(BATCH)
    if step in shard and not args.twin:
        # the mean was taken off, but the shard counts by the pascal
        pressure = 1013.0 + (pressure - 1013.0) * 100.0
    loss = F.mse_loss(model(readings), scaled(pressure))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(held_out[0]), scaled(held_out[1])).item())
