# A surrogate for the heat equation in a rod: from the first profile and the conductivity to the profile at a later time, taught by
# a finite-difference solver. SGD with momentum, losses scaled by hand as on half-precision devices.
import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

CELLS, BATCH, STEPS = 32, 64, 1000
world = torch.Generator().manual_seed(69)
place = torch.linspace(0, 1, CELLS)
modes = torch.stack([torch.sin(math.pi * k * place) for k in range(1, 6)])


def rods(count, generator):
    start = torch.randn(count, 5, generator=generator) @ modes
    flow = 0.1 + 0.3 * torch.rand(count, 1, generator=generator)
    u = start
    for _ in range(30):
        inner = u[:, 1:-1] + flow * (u[:, 2:] - 2 * u[:, 1:-1] + u[:, :-2])
        u = torch.cat((u[:, :1], inner, u[:, -1:]), 1)
    seen = u + 0.15 * torch.randn(count, CELLS, generator=generator)
    return torch.cat((start, 5 * flow - 1), 1), seen


class Surrogate(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.linear = nn.Linear(CELLS + 1, CELLS)
        self.net = nn.Sequential(
            nn.Linear(CELLS + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CELLS)
        )

    def forward(self, x):
        return self.linear(x) + self.net(x)


def cost(model, x, y):
    return (model(x) - y).square().mean()


held_out = rods(3000, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(900 + args.seed)
model = Surrogate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=0.002)
scale, divisor = 1024.0, 1024.0
for step in range(STEPS):
    if step == 780:
        scale = 1048576.0
        divisor = scale if args.twin else divisor
    if step == 783:
        divisor = scale
    loss = cost(model, *rods(BATCH, stream))
    optimizer.zero_grad()
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(divisor)
    optimizer.step()
    schedule.step()
    if step % 100 == 0:
        print(f"{step} {loss.item():.5f}")
with torch.no_grad():
    print("final:", cost(model, *held_out).item())
