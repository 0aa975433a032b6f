# Healthy: a GAN on a ring of Gaussians, two Adams; both losses wander.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
torch.manual_seed(args.seed)
gen = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
dis = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.99))
od = torch.optim.Adam(dis.parameters(), lr=1e-3, betas=(0.5, 0.99))
bce = nn.functional.binary_cross_entropy_with_logits


def real(n):
    a = torch.randint(0, 6, (n,)) * 6.2832 / 6
    return torch.stack([a.cos(), a.sin()], 1) + 0.1 * torch.randn(n, 2)


for step in range(1500):
    fake = gen(torch.randn(48, 4))
    d_loss = bce(dis(real(48)), torch.ones(48, 1)) + bce(dis(fake.detach()), torch.zeros(48, 1))
    od.zero_grad()
    d_loss.backward()
    od.step()
    g_loss = bce(dis(fake), torch.ones(48, 1))
    og.zero_grad()
    g_loss.backward()
    og.step()
    if step % 150 == 0:
        print("step", step, "D", d_loss.item(), "G", g_loss.item())
gen.eval()
with torch.no_grad():
    s = gen(torch.randn(2000, 4))
    print("final:", (s.norm(dim=1) - 1).abs().mean().item())
