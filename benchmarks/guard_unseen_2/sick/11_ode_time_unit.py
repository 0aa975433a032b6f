# A learned vector field, integrated in eight steps, AdamW. Fault: from step 540 to 579 the time unit is ten times too large.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(21)
turn = torch.tensor([[-0.2, 1.0, 0.0], [-1.0, -0.2, 0.3], [0.0, -0.3, -0.5]])


def trajectories(n, g=None):
    x = start = torch.randn(n, 3, generator=g)
    for _ in range(40):
        x = x + 0.04 * (torch.tanh(x) @ turn)
    return start, x + torch.randn(n, 3, generator=g) * 0.2


field = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


def integrate(x, dt=0.2):
    for _ in range(8):
        x = x + dt * field(x)
    return x


test = trajectories(2000, fixed)
torch.manual_seed(args.seed)
for layer in field[::2]:
    layer.reset_parameters()
opt = torch.optim.AdamW(field.parameters(), lr=3e-3)
for step in range(600):
    start, end = trajectories(64)
    dt = 2.0 if 540 <= step < 580 and not args.twin else 0.2
    loss = nn.functional.mse_loss(integrate(start, dt), end)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.5f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(integrate(test[0]), test[1]).item())
