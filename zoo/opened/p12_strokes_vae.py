# expect: sick
# symptom: std = logvar in the reparametrisation (exp(0.5*) forgotten), KL uses it as log variance
# axis: loss
# cause: the deviation of the code is the log-variance or the variance
# says: logvar|log.?var|std|deviation|variance|exp\(
# onset_step: 0
# fix: exp(0.5 * logvar)
# mended: q12_strokes_vae.py
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
        self.to_logvar = nn.Linear(hidden, ZDIM)
        self.dec = nn.Sequential(
            nn.Linear(ZDIM, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, SIDE * SIDE)
        )

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), self.to_logvar(h)

    def forward(self, x):
        mu, logvar = self.encode(x)
        std = logvar
        z = mu + std * torch.randn_like(std)
        return self.dec(z), mu, logvar


def kl_term(mu, logvar):
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()


pictures = strokes(8000)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
for step in range(500):
    x = pictures[torch.randint(0, len(pictures), (64,))]
    logits, mu, logvar = vae(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = kl_term(mu, logvar)
    loss = rec + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0 or step == 499:
        print(f"step {step:3d} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f}")

with torch.no_grad():
    x = strokes(500)
    mu, logvar = vae.encode(x)
    spread = torch.exp(0.5 * logvar)
    z = mu + spread * torch.randn_like(mu)
    rec = F.binary_cross_entropy_with_logits(vae.dec(z), x, reduction="none").sum(1).mean()
    print(f"held out: rec {rec.item():.3f} mean posterior std {spread.mean().item():.3f}")
