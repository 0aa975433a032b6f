# Healthy: a least-squares GAN on a spiral; two Adams, two critic steps per round.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(55)


def spiral(n, g=None):
    t = torch.rand(n, generator=g).sqrt() * 9
    return torch.stack([t * t.cos(), t * t.sin()], 1) / 6 + 0.05 * torch.randn(n, 2, generator=g)


test_real, test_z = spiral(3000, fixed), torch.randn(3000, 8, generator=fixed)
torch.manual_seed(args.seed)
gen = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 2))
crit = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_c = torch.optim.Adam(crit.parameters(), lr=2e-3, betas=(0.5, 0.999))
for step in range(700):
    for _ in range(2):
        loss_c = (crit(spiral(64)) - 1).pow(2).mean() + crit(gen(torch.randn(64, 8)).detach()).pow(2).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = (crit(gen(torch.randn(64, 8))) - 1).pow(2).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 50 == 0:
        print(step, f"critic {loss_c.item():.4f} generator {loss_g.item():.4f}")
with torch.no_grad():
    fake = gen(test_z)
    print("final:", torch.cdist(test_real[:1000], fake).min(1).values.mean().item())
