# The load of a power grid for the next 12 hours from the last 48, by a network of convolutions over time. SGD with Nesterov
# momentum, resumed once from a file.
import argparse
import copy

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

PAST, AHEAD, BATCH, STEPS = 48, 12, 24, 900
world = torch.Generator().manual_seed(68)


def series(count, generator):
    hour = torch.arange(float(PAST + AHEAD))
    shift = 24 * torch.rand(count, 1, generator=generator)
    size = 0.5 + torch.rand(count, 1, generator=generator)
    evening = torch.rand(count, 1, generator=generator)
    trend = 0.01 * torch.randn(count, 1, generator=generator) * hour
    day = 6.2832 * (hour + shift) / 24
    load = size * day.sin() + evening * (2 * day + 1).cos() + trend
    return load + 0.1 * torch.randn(count, PAST + AHEAD, generator=generator)


def build():
    return nn.Sequential(
        nn.Conv1d(1, 24, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(24, 24, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv1d(24, 24, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 12, 64),
        nn.ReLU(),
        nn.Linear(64, AHEAD),
    )


def cost(model, load):
    return (model(load[:, None, :PAST]) - load[:, PAST:]).square().mean()


def optimizer_for(model, momentum):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, nesterov=True)


held_out = series(3000, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(800 + args.seed)
model = build()
optimizer = optimizer_for(model, 0.9)
for step in range(STEPS):
    if step == 420:
        saved = copy.deepcopy(optimizer.state_dict())
        optimizer = optimizer_for(model, 0.9)
        optimizer.load_state_dict(saved)
        if not args.twin:
            optimizer.param_groups[0]["momentum"] = 0.998
    if step == 700:
        optimizer.param_groups[0]["lr"] = 0.03
    loss = cost(model, series(BATCH, stream))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:4d} loss {loss.item():.5f}")
with torch.no_grad():
    print("final:", cost(model, held_out).item())
