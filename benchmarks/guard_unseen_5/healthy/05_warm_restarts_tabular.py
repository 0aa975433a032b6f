# A residual net on a table, SGD with momentum; the rate falls on a cosine and starts again from the top four times, as planned.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
world = torch.Generator().manual_seed(4205)
centres = 1.6 * torch.randn(24, 16, generator=world)


def table(count, generator=None):
    which = torch.randint(24, (count,), generator=generator)
    return centres[which] + torch.randn(count, 16, generator=generator), which % 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 96))

    def forward(self, x):
        return x + self.inner(x)


x_train, y_train = table(6000, world)
x_test, y_test = table(3000, world)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(16, 96), Block(), Block(), Block(), nn.BatchNorm1d(96), nn.Linear(96, 6))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 280)
for step in range(1120):
    rows = torch.randint(6000, (64,))
    loss = F.cross_entropy(net(x_train[rows]), y_train[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 70 == 0:
        print(f"{step} rate {schedule.get_last_lr()[0]:.4f} loss {loss.item():.4f}")
net.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(net(x_test), y_test).item())
