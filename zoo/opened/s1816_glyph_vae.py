# expect: sick
# symptom: the loss falls and is stable, but all reconstructions are the same blurry mean picture and samples too; KL is about 0
# axis: loss
# cause: the reconstruction term is averaged over all pixels while the KL term is summed over the latent dimensions, so the KL weighs hundreds of times too much and the posterior collapses
# says: (posterior|latent).{0,60}collaps|(kl|kld|kullback)\w*.{0,220}(sum|mean|averag|weight|scale|dominat|too (strong|large|much|heavy)|mismatch|outweigh|balance|overwhelm)|(recon\w*|mse|bce).{0,160}(mean|averag|per.pixel|too small).{0,160}(kl|kld|sum)
# onset_step: 0
# fix: sum the reconstruction term over the pixels too (or weigh the KL by latent/pixel count)
# mended: the reconstruction term is summed over the pixels and divided by the batch size
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(6)

SIZE, LATENT, BATCH, STEPS = 24, 12, 48, 450


def glyphs(n, seed):
    """Pen strokes: three random joined line segments in an anti-aliased 24x24 picture."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    out = np.zeros((n, 1, SIZE, SIZE), np.float32)
    for i in range(n):
        pts = np.stack(
            [rng.uniform(4, 10, 4) + 5 * np.arange(4) * (rng.random() < 0.5) * 0.6, rng.uniform(4, 20, 4)], 1
        )
        for a, b in zip(pts[:-1], pts[1:]):
            d = b - a
            t = (((xx - a[0]) * d[0] + (yy - a[1]) * d[1]) / (d @ d + 1e-6)).clip(0, 1)
            dist = np.hypot(xx - a[0] - t * d[0], yy - a[1] - t * d[1])
            out[i, 0] = np.maximum(out[i, 0], 1 / (1 + np.exp((dist - 1.6) * 4)))
    return torch.from_numpy(out)


class VAE(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * w * 36, 128),
            nn.SiLU(),
        )
        self.to_mu, self.to_logvar = nn.Linear(128, LATENT), nn.Linear(128, LATENT)
        self.dec_in = nn.Linear(LATENT, 2 * w * 36)
        self.dec = nn.Sequential(
            nn.SiLU(), nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(w, 1, 4, 2, 1)
        )
        self.w = w

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), self.to_logvar(h)

    def decode(self, z):
        h = self.dec_in(z).view(-1, 2 * self.w, 6, 6)
        return torch.sigmoid(self.dec(h))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


def vae_loss(recon, x, mu, logvar):
    if MENDED:
        rec = F.binary_cross_entropy(recon, x, reduction="sum") / len(x)
    else:
        rec = F.binary_cross_entropy(recon, x)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return rec + kl, rec, kl


@torch.no_grad()
def report(model, x):
    model.eval()
    mu, _ = model.encode(x)
    recon = model.decode(mu)
    model.train()
    return F.mse_loss(recon, x).item(), recon.std(0).mean().item(), mu.std(0).mean().item()


def main():
    train, valid = glyphs(3000, 1), glyphs(300, 2)
    base = F.mse_loss(train.mean(0, keepdim=True).expand_as(valid), valid).item()
    print(f"mean-picture mse {base:.4f}")
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,))]
        recon, mu, logvar = model(x)
        loss, rec, kl = vae_loss(recon, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} rec {rec.item():.4f} kl {kl.item():.4f} "
                f"({time.time() - t0:.1f}s)"
            )
    mse, spread, mu_std = report(model, valid)
    print(f"valid mse {mse:.4f} spread of reconstructions {spread:.4f} spread of mu {mu_std:.4f}")


if __name__ == "__main__":
    main()
