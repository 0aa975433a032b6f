# expect: healthy
# cause: none, a GAN whose two losses hover in balance while the samples get better
import math

import torch
from torch import nn

torch.manual_seed(22)


def real(n):
    angle = 2 * math.pi * torch.rand(n, 1)
    radius = 1 + 0.05 * torch.randn(n, 1)
    return torch.cat([1.5 * radius * angle.cos() + 0.8, radius * angle.sin() - 0.5], 1)


G = nn.Sequential(nn.Linear(4, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 2))
D = nn.Sequential(nn.Linear(2, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=3e-3, betas=(0.0, 0.9))


@torch.no_grad()
def energy_distance(n=1500):
    a, b = G(torch.randn(n, 4)), real(n)
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


print(f"before: energy distance {energy_distance():.4f}")
for it in range(250):
    for p in D.parameters():
        p.requires_grad_(True)
    x = real(256).requires_grad_(True)
    fake = G(torch.randn(256, 4)).detach()
    d_real = D(x)
    (gx,) = torch.autograd.grad(d_real.sum(), x, create_graph=True)
    loss_d = (
        nn.functional.softplus(-d_real).mean() + nn.functional.softplus(D(fake)).mean() + 0.02 * gx.pow(2).sum(1).mean()
    )
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    for p in D.parameters():
        p.requires_grad_(False)
    loss_g = nn.functional.softplus(-D(G(torch.randn(256, 4)))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if it % 25 == 24:
        print(f"it {it + 1} D {loss_d.item():.3f} G {loss_g.item():.3f} energy distance {energy_distance():.4f}")
