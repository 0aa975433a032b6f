# Two nets against each other: a generator of points on a spiral and a critic, Adam for both. Both losses swing all the way.
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def spiral(count, generator=None):
    turn = 2 * math.pi * torch.rand(count, generator=generator)
    radius = 0.3 + turn / 7
    points = torch.stack([radius * turn.cos(), radius * turn.sin()], 1)
    return points + 0.03 * torch.randn(count, 2, generator=generator)


def distance(a, b):
    """The energy distance of two clouds."""
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()


held_out = spiral(1500, torch.Generator().manual_seed(4201))
torch.manual_seed(args.seed)
maker = nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))
critic = nn.Sequential(nn.Linear(2, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1))
make_opt = torch.optim.Adam(maker.parameters(), lr=6e-4, betas=(0.5, 0.9))
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
for step in range(1500):
    real, fake = spiral(128), maker(torch.randn(128, 4))
    critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    make_loss = F.softplus(-critic(maker(torch.randn(128, 4)))).mean()
    make_opt.zero_grad()
    make_loss.backward()
    make_opt.step()
    if step % 150 == 0:
        print(step, round(critic_loss.item(), 4), round(make_loss.item(), 4))
with torch.no_grad():
    print("final:", distance(maker(torch.randn(1500, 4)), held_out).item())
