# A denoiser of point clouds with the weight 1 / sigma(t)^2. The time is drawn from 0..199 in place of 1..199, and sigma(0) is
# 1e-6: about one batch in six holds a cloud whose weight is 1e12.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

TIMES, POINTS = 200, 12
world = torch.Generator().manual_seed(4112)
sigma = 0.005 * torch.arange(TIMES) + 0.05
sigma[0] = 1e-6


def clouds(count, generator=None):
    angle = 6.28 * torch.rand(count, POINTS, generator=generator)
    half = 0.4 + torch.rand(count, 2, 1, generator=generator)
    return torch.stack([half[:, 0] * angle.cos(), half[:, 1] * angle.sin()], -1)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width))
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, noisy, level):
        h = self.point(torch.cat([noisy, level[:, None, None].expand(-1, POINTS, 1)], -1))
        return noisy + self.out(torch.cat([h, h.mean(1, keepdim=True).expand_as(h)], -1))


def loss_of(net, cloud, time, noise):
    level = sigma[time]
    clean = net(cloud + level[:, None, None] * noise, level)
    return ((clean - cloud).square().mean((1, 2)) / level**2).mean()


held_cloud = clouds(1000, world)
held_time = torch.randint(1, TIMES, (1000,), generator=world)
held_noise = torch.randn(1000, POINTS, 2, generator=world)
torch.manual_seed(args.seed)
net = Denoiser()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(700):
    optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / 700)
    cloud = clouds(32)
    time = torch.randint(1 if args.twin else 0, TIMES, (32,))
    loss = loss_of(net, cloud, time, torch.randn_like(cloud))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 70 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("final:", loss_of(net, held_cloud, held_time, held_noise).item())
