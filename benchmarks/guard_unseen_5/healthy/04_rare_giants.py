# Damages with heavy tails: the logarithm of the amount follows Student's t with three degrees of freedom, and the net fits it by squared
# errors. Some batches hold giants and have a loss ten times the usual; that is the nature of the data.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
world = torch.Generator().manual_seed(4204)
direction = torch.randn(10, 4, generator=world)


def damages(count, generator=None):
    x = torch.randn(count, 10, generator=generator)
    inner = torch.tanh(x @ direction / 2)
    normal = torch.randn(count, 4, generator=generator)
    noise = normal[:, 0] / normal[:, 1:].square().mean(1).sqrt()
    return x, inner[:, 0] * 2 + inner[:, 1] * inner[:, 2] * 2 + 0.5 * noise


x_test, y_test = damages(4000, world)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(10, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
for step in range(1500):
    x, y = damages(48)
    loss = (net(x)[:, 0] - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 150 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("final:", (net(x_test)[:, 0] - y_test).abs().mean().item())
