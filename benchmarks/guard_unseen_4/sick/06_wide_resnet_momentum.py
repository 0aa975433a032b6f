# A residual network for small textures, SGD with Nesterov momentum and a one-cycle rate. From step 180 on, a config reload
# brings a momentum of 0.999 where 0.9 was; the rate stays as it is.
import argparse

import torch
from torch import nn
import torch.nn.functional as F

options = argparse.ArgumentParser()
options.add_argument("--seed", type=int, default=0)
options.add_argument("--twin", action="store_true")
options = options.parse_args()

N_CLASS = 6
master = torch.Generator().manual_seed(90)
kernels = torch.randn(N_CLASS, 1, 5, 5, generator=master)


def textures(n, gen=None):
    y = torch.randint(0, N_CLASS, (n,), generator=gen)
    noise = torch.randn(1, n, 20, 20, generator=gen)
    x = F.conv2d(noise, kernels[y], groups=n).transpose(0, 1)
    x = x / x.std((2, 3), keepdim=True)
    return x + 0.7 * torch.randn(n, 1, 16, 16, generator=gen), y


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1),
        )

    def forward(self, x):
        return x + self.f(x)


def build(c=20):
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1),
        Residual(c),
        nn.AvgPool2d(2),
        Residual(c),
        nn.AvgPool2d(2),
        Residual(c),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(c, N_CLASS),
    )


vx, vy = textures(1200, master)
torch.manual_seed(options.seed)
net = build()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=320, cycle_momentum=False)
for step in range(320):
    if step == 180 and not options.twin:
        opt.param_groups[0]["momentum"] = 0.999
    x, y = textures(32)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    cycle.step()
    if step % 40 == 0:
        print(f"{step:4d} {loss.item():.4f}")

net.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(net(vx), vy).item())
