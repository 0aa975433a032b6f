# A GAN on eight spots of a ring, hinge loss, two optimizers, the critic twice as fast as the generator. Its losses go up and down as those
# of a GAN do; the end is measured by a kernel distance to held-out points.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap = ap.parse_args()


def ring(n, g=None):
    k = torch.randint(0, 8, (n,), generator=g) * torch.pi / 4
    return torch.stack([k.cos(), k.sin()], 1) * 2 + 0.1 * torch.randn(n, 2, generator=g)


def kernel_distance(a, b):
    def k(u, v):
        return sum(torch.exp(-torch.cdist(u, v).square() / (2 * w * w)).mean() for w in (0.2, 0.5, 1.0))

    return (k(a, a) + k(b, b) - 2 * k(a, b)).item()


hold = torch.Generator().manual_seed(4)
real_test, noise_test = ring(1500, hold), torch.randn(1500, 8, generator=hold)
torch.manual_seed(ap.seed)
gen = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
dis = nn.Sequential(nn.Linear(2, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
opt_g = torch.optim.Adam(gen.parameters(), lr=5e-4, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(dis.parameters(), lr=1e-3, betas=(0.5, 0.99))
for step in range(800):
    real, fake = ring(256), gen(torch.randn(256, 8))
    loss_d = F.relu(1 - dis(real)).mean() + F.relu(1 + dis(fake.detach())).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = -dis(gen(torch.randn(256, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 80 == 0:
        print(f"{step} critic {loss_d.item():.3f} generator {loss_g.item():.3f}")

with torch.no_grad():
    print("final:", kernel_distance(gen(noise_test), real_test))
