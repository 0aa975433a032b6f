# The level at a harbour is predicted from the last hours by a plain recurrent network (ReLU, started at the identity), RMSprop without
# clipping. From step 120 on, about every forty steps, one station sends its hours in millimetres: a series a thousand times too large in
# the batch, and through 24 repeated products the gradient's norm explodes. The right answer is to skip or clip these updates.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the station sends metres")
args = parser.parse_args()
torch.set_num_threads(1)

HOURS, GAUGES, STEPS, BATCH = 24, 3, 460, 40
world = torch.Generator().manual_seed(1953)
delay = torch.tensor([0.0, 0.7, 1.9])
millimetres, at = set(), 120
while at < STEPS:
    millimetres.add(at)
    at += int(torch.randint(33, 48, (1,), generator=world))


def levels(count, generator=None):
    """The last hours at three gauges and the level at the harbour two hours on."""
    phase = 6.283 * torch.rand(count, 2, 1, 1, generator=generator)
    size = 0.4 + torch.rand(count, 2, 1, 1, generator=generator)
    hour = torch.arange(HOURS + 2.0).view(-1, 1) - delay
    tide = (size * torch.sin(torch.tensor([0.506, 0.261]).view(2, 1, 1) * hour + phase)).sum(1)
    surge = 0.05 * torch.randn(count, HOURS + 2, GAUGES, generator=generator).cumsum(1)
    series = tide + surge
    level = series[:, -1, 0] + 0.3 * torch.randn(count, generator=generator)
    return series[:, :HOURS], level


class Recurrent(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.rnn = nn.RNN(GAUGES, width, nonlinearity="relu", batch_first=True)
        nn.init.eye_(self.rnn.weight_hh_l0)
        self.rnn.weight_hh_l0.data.mul_(0.9)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        states, _ = self.rnn(series)
        return self.head(states[:, -1]).squeeze(1)


def batches():
    step = 0
    while step < STEPS:
        series, level = levels(BATCH)
        if step in millimetres and not args.twin:
            series[:4] *= 1000
            level[:4] *= 1000
        yield series, level
        step += 1


held_out = levels(512, world)
torch.manual_seed(args.seed)
model = Recurrent()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.99)
for step, (series, level) in enumerate(batches()):
    for group in optimizer.param_groups:  # a power of the step after the first sixty
        group["lr"] = 1e-3 * min(1.0, (60 / (step + 1)) ** 0.7)
    optimizer.zero_grad()
    loss = F.mse_loss(model(series), level)
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(held_out[0]), held_out[1]).item())
