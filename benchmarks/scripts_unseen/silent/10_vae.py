# EXPECT: sick
# FAULT: latent detached between encoder and decoder
# ONSET: 1
# SAYS: detach|no gradient|gradient|encoder|collapse
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)


class VAE(nn.Module):
    def __init__(self, d_in=64, d_h=96, d_z=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d_in, d_h), nn.Tanh())
        self.to_mu = nn.Linear(d_h, d_z)
        self.to_logvar = nn.Linear(d_h, d_z)
        self.dec = nn.Sequential(nn.Linear(d_z, d_h), nn.Tanh(), nn.Linear(d_h, d_in))

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = self.reparameterize(mu, logvar)
        recon = self.dec(z.detach())
        return recon, mu, logvar


basis = torch.randn(4, 64)


def draw(n):
    return torch.randn(n, 4) @ basis * 0.5 + 0.05 * torch.randn(n, 64)


vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
for step in range(150):
    x = draw(128)
    recon, mu, logvar = vae(x)
    rec = F.mse_loss(recon, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)
    loss = rec + 0.2 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"step {step:3d} elbo-loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.4f}")
