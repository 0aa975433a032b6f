# expect: sick
# symptom: from step 150 the reconstruction error climbs back to the variance of the images and stays there; all samples look like the mean image
# axis: loss
# cause: the reconstruction is averaged over the pixels while the KL is summed over the latents, so the KL outweighs it by the number of pixels and the posterior collapses
# says: collaps|(kl|beta).{0,60}(weight|too (large|big|strong|heavy)|outweigh|dominat|sum|reduc|scale|balance|coefficient)|(reconstruction|mse).{0,60}(mean|averag|reduc|per.pixel|outweigh|too small|sum)|reduction
# onset_step: 150
# fix: sum the reconstruction error over the pixels as well
# mended: sums the squared error over the pixels (mean over the batch)
import os

import torch
import torch.nn as nn

torch.manual_seed(8)
SIDE = 16


def shapes(n):
    """Bright discs and bars on a dark background."""
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    cx, cy = (torch.rand(2, n, 1, 1) - 0.5) * 1.2
    r = 0.2 + 0.35 * torch.rand(n, 1, 1)
    disc = torch.sigmoid(((r**2) - (xx - cx) ** 2 - (yy - cy) ** 2) * 30)
    bar = torch.sigmoid((r / 2 - (xx - cx).abs()) * 30)
    kind = (torch.rand(n, 1, 1) < 0.5).float()
    return (kind * disc + (1 - kind) * bar).view(n, -1)


class VAE(nn.Module):
    def __init__(self, z=10):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(SIDE * SIDE, 160), nn.ReLU(), nn.Linear(160, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 160), nn.ReLU(), nn.Linear(160, SIDE * SIDE), nn.Sigmoid())

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(x, out, mu, logvar, beta):
    if os.environ.get("MENDED") == "1":
        rec = (out - x).pow(2).sum(-1).mean()
    else:
        rec = nn.functional.mse_loss(out, x)
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(-1).mean()
    return rec + beta * kl, kl


WARM = 150  # plain autoencoder first
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=1.5e-3)
images = shapes(4000)
for step in range(700):
    x = images[torch.randint(len(images), (64,))]
    beta = 0.0 if step < WARM else min(1.0, (step - WARM + 1) / 60)
    out, mu, logvar = vae(x)
    loss, kl = elbo(x, out, mu, logvar, beta)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 699:
        err = (out - x).pow(2).mean().item()
        print(
            f"{step:4d} loss {loss.item():.4f} pixel error {err:.4f} (variance {x.var(0).mean().item():.4f}) kl {kl.item():.3f} beta {beta:.2f}"
        )
