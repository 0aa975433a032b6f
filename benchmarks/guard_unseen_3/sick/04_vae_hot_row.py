# A VAE on small sprites, Adam. Two frames of step 400 have a row at the ends of a 16-bit integer, where 0 to 1 is usual.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.add_argument("--twin", action="store_true")
args = p.parse_args()
fixed = torch.Generator().manual_seed(304)


def sprites(n, g=None):
    yy, xx = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    cx, cy, r = (torch.rand(n, 1, 1, generator=g) * s + o for s, o in ((5, 2.5), (5, 2.5), (1.5, 1.0)))
    blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * r**2))
    return (blob + 0.1 * torch.randn(n, 10, 10, generator=g)).flatten(1)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(100, 96), nn.SiLU(), nn.Linear(96, 48), nn.SiLU())
        self.mu, self.logvar = nn.Linear(48, 6), nn.Linear(48, 6)
        self.dec = nn.Sequential(nn.Linear(6, 48), nn.SiLU(), nn.Linear(48, 96), nn.SiLU(), nn.Linear(96, 100))

    def forward(self, x, noise=None):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(logvar / 2) * (torch.randn_like(mu) if noise is None else noise)
        rec = F.mse_loss(self.dec(z), x, reduction="none").sum(1) / (2 * 0.1**2)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)
        return (rec + kl).mean()


test, noise = sprites(2000, fixed), torch.randn(2000, 6, generator=fixed)
torch.manual_seed(args.seed)
vae = Vae()
adam = torch.optim.Adam(vae.parameters(), lr=1.5e-3)
for step in range(800):
    x = sprites(64)
    if step == 400 and not args.twin:
        x[11, 30:40], x[12, 30:40] = 32767.0, -32768.0
    loss = vae(x)
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 80 == 0:
        print(f"[{step}] -elbo {loss.item():.2f}")
with torch.no_grad():
    print("final:", vae(test, noise).item())
