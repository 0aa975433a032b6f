# expect: healthy
# fault: a generator loss that grows and oscillates
# note: a hinge GAN on a ring of Gaussians; the losses are a game and need not fall, the distance of the samples to the ring does.
import math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(7)


def ring(n):
    k = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    return torch.stack([torch.cos(k), torch.sin(k)], 1) * 2 + 0.05 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og = torch.optim.Adam(G.parameters(), lr=1.5e-3, betas=(0.0, 0.99))
od = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.99))
for it in range(150):
    real, fake = ring(192), G(torch.randn(192, 8)).detach()
    d_loss = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake)).mean()
    od.zero_grad()
    d_loss.backward()
    od.step()
    g_loss = -D(G(torch.randn(192, 8))).mean()
    og.zero_grad()
    g_loss.backward()
    og.step()
    if it % 20 == 0:
        with torch.no_grad():
            r = (G(torch.randn(500, 8)).norm(dim=1) - 2).abs().mean()
        print(f"{it} d {d_loss.item():.3f} g {g_loss.item():.3f} distance {r.item():.3f}")
