# expect: healthy
# symptom: none (std by softplus, KL written for std)
# axis: none
# mended: none
# Variational autoencoder on small pictures of two strokes.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)
SIDE = 16
ZDIM = 8


def strokes(n):
    grid = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    img = torch.zeros(n, SIDE, SIDE)
    for _ in range(2):
        c = torch.rand(n, 2, 1, 1) * 1.2 - 0.6
        ang = torch.rand(n, 1, 1) * torch.pi
        along = (xx - c[:, 0]) * ang.cos() + (yy - c[:, 1]) * ang.sin()
        across = -(xx - c[:, 0]) * ang.sin() + (yy - c[:, 1]) * ang.cos()
        img = torch.maximum(img, torch.exp(-((across / 0.12) ** 2) - (along / 0.5) ** 4))
    return img.flatten(1).clamp(0, 1)


class VAE(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.to_mu = nn.Linear(hidden, ZDIM)
        self.to_std = nn.Linear(hidden, ZDIM)
        self.dec = nn.Sequential(
            nn.Linear(ZDIM, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, SIDE * SIDE)
        )

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), F.softplus(self.to_std(h)) + 1e-4

    def forward(self, x):
        mu, std = self.encode(x)
        z = mu + std * torch.randn_like(std)
        return self.dec(z), mu, std


def kl_term(mu, std):
    return (0.5 * (mu.pow(2) + std.pow(2) - 1) - std.log()).sum(1).mean()


pictures = strokes(8000)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
for step in range(500):
    x = pictures[torch.randint(0, len(pictures), (64,))]
    logits, mu, std = vae(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = kl_term(mu, std)
    loss = rec + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0 or step == 499:
        print(f"step {step:3d} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f}")

with torch.no_grad():
    x = strokes(500)
    mu, std = vae.encode(x)
    spread = std
    z = mu + spread * torch.randn_like(mu)
    rec = F.binary_cross_entropy_with_logits(vae.dec(z), x, reduction="none").sum(1).mean()
    print(f"held out: rec {rec.item():.3f} mean posterior std {spread.mean().item():.3f}")
