# expect: sick
# symptom: KL falls to zero within a few hundred steps, every reconstruction is the same blurred mean image
# axis: loss
# cause: the reconstruction error is averaged over all pixels while the KL term is summed over the latents, so the KL outweighs the reconstruction by hundreds and the posterior collapses onto the prior
# says: posterior[ -]?collaps|(kl\w*|kld|beta|diverg\w*)[^.]{0,80}(outweigh|dominat|too (large|big|strong|high|heav)|overwhelm|over-?weight|swamp|drown|larger than|scale|reduc)|(recon\w*|mse|bce)[^.]{0,80}(averag|mean|per[ -]pixel|too (small|weak|low)|under-?weight|outweigh|dominated|drown|swamp)|(mis-?match|inconsisten|different|unequal)[^.]{0,40}(reduction|scale|weight)[^.]{0,60}(kl|recon)
# onset_step: 1
# fix: sum the reconstruction error over the pixels of an image (and average over the batch), as the KL is
# mended: with MENDED=1 recon_loss uses the sum over pixels divided by the batch size
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(42)

SIZE, LATENT = 16, 8


def shapes(n, seed):
    """Squares, discs and crosses of random place, radius and brightness in [0, 1]."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    out = np.zeros((n, 1, SIZE, SIZE), np.float32)
    for i in range(n):
        cx, cy = rng.uniform(4, SIZE - 5, 2)
        r, kind = rng.uniform(2.0, 4.0), rng.integers(3)
        dx, dy = np.abs(xx - cx), np.abs(yy - cy)
        if kind == 0:
            m = (dx <= r) & (dy <= r)
        elif kind == 1:
            m = dx**2 + dy**2 <= r**2
        else:
            m = ((dx <= 1) & (dy <= r + 1)) | ((dy <= 1) & (dx <= r + 1))
        out[i, 0][m] = rng.uniform(0.8, 1.0)
    return torch.from_numpy(out)


class ConvVAE(nn.Module):
    def __init__(self, latent=LATENT, ch=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, ch, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(ch, 2 * ch, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * ch * 16, 96),
            nn.ReLU(),
        )
        self.to_mu = nn.Linear(96, latent)
        self.to_logvar = nn.Linear(96, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 96),
            nn.ReLU(),
            nn.Linear(96, 2 * ch * 16),
            nn.ReLU(),
            nn.Unflatten(1, (2 * ch, 4, 4)),
            nn.ConvTranspose2d(2 * ch, ch, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(ch, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


def recon_loss(recon, x):
    if MENDED:
        return F.binary_cross_entropy(recon, x, reduction="sum") / len(x)
    return F.binary_cross_entropy(recon, x)


def kl_loss(mu, logvar):
    return (-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1)).mean()


@torch.no_grad()
def evaluate(model, x):
    model.eval()
    recon, mu, _ = model(x)
    mse = F.mse_loss(recon, x).item()
    return 1 - mse / x.sub(x.mean(0)).pow(2).mean().item(), mu.std(0).gt(0.1).sum().item()


def train(epochs=12, batch_size=64, lr=2e-3):
    loader = DataLoader(TensorDataset(shapes(3200, 0)), batch_size, shuffle=True)
    held_out = shapes(400, 1)
    model = ConvVAE()
    optim = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(1, epochs + 1):
        model.train()
        tot, tot_kl = 0.0, 0.0
        for (x,) in loader:
            recon, mu, logvar = model(x)
            kl = kl_loss(mu, logvar)
            loss = recon_loss(recon, x) + kl
            optim.zero_grad()
            loss.backward()
            optim.step()
            tot += loss.item()
            tot_kl += kl.item()
        r2, active = evaluate(model, held_out)
        print(
            f"epoch {epoch:2d} loss {tot / len(loader):.4f} kl {tot_kl / len(loader):.4f} "
            f"explained variance {r2:.3f} active latents {active}/{LATENT}"
        )


if __name__ == "__main__":
    train()
