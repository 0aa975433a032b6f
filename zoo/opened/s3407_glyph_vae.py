# expect: sick
# symptom: the KL goes to 0, every reconstruction is the same mean image, the loss is flat after a short fall
# axis: loss
# cause: reconstruction is a mean over pixels but the KL is a sum over latents, so the KL outweighs it (collapse)
# says: \bKLD?\b.{0,120}(weigh|scale|large|strong|domin|sum|too|collaps|balanc|mean)|posterior.collaps|Kullback
# onset_step: 0
# fix: sum the reconstruction error over the pixels (per image), as the KL is summed over the latents
# mended: the script applies that change if the environment has MENDED=1
"""VAE on small drawn glyphs."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)

SIZE = 16


def draw_glyphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    cx = 0.9 * torch.rand(n, 1, 1, generator=g) - 0.45
    cy = 0.9 * torch.rand(n, 1, 1, generator=g) - 0.45
    radius = 0.2 + 0.3 * torch.rand(n, 1, 1, generator=g)
    ring = (torch.rand(n, 1, 1, generator=g) < 0.5).float()
    dist = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    disc = torch.sigmoid((radius - dist) * 14)
    hole = torch.sigmoid((radius * 0.5 - dist) * 14)
    return (disc - ring * hole).clamp(0, 1).unsqueeze(1)


class GlyphVAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu = nn.Linear(32 * 16, latent)
        self.logvar = nn.Linear(32 * 16, latent)
        self.up = nn.Linear(latent, 32 * 16)
        self.dec = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def decode(self, z):
        return self.dec(F.relu(self.up(z)).view(-1, 32, 4, 4)).sigmoid()

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decode(z), mu, logvar


def elbo_loss(recon, x, mu, logvar):
    rec = F.binary_cross_entropy(recon, x, **({"reduction": "sum"} if MENDED else {})) / (len(x) if MENDED else 1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + kl, kl


@torch.no_grad()
def explained(model, x):
    """Share of the pixel variance that the reconstruction (from the mean code) explains."""
    model.eval()
    recon = model.decode(model.mu(model.enc(x)))
    model.train()
    return (1 - (recon - x).pow(2).sum() / (x - x.mean(0)).pow(2).sum()).item()


def main():
    loader = DataLoader(TensorDataset(draw_glyphs(3200, 1)), batch_size=64, shuffle=True)
    held_out = draw_glyphs(400, 2)
    model = GlyphVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(8):
        for (x,) in loader:
            recon, mu, logvar = model(x)
            loss, kl = elbo_loss(recon, x, mu, logvar)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} kl {kl.item():.4f}")
            step += 1
        print(f"epoch {epoch} explained variance {explained(model, held_out):.3f}")


if __name__ == "__main__":
    main()
