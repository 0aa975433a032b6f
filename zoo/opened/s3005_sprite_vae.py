# expect: sick
# symptom: all reconstructions look like one grey average sprite, the kl term goes to zero, no crash
# axis: loss
# cause: reconstruction is averaged over pixels but the KL is summed over latents: KL dominates, posterior collapse
# says: \bkl\b.*(weigh|domin|mean|sum|averag|scal|reduc|strong|too)|posterior.collapse|mean.*\bkl\b
# onset_step: 1
# fix: sum the reconstruction error over the pixels of an image (mean over the batch only)
# mended: the script applies that change if the environment has MENDED=1
"""Convolutional VAE on procedurally drawn 16x16 sprites."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
SEED, STEPS, BATCH, LATENT, SIDE = 8, 400, 64, 6, 16


def draw(n, rng):
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    imgs = np.zeros((n, 1, SIDE, SIDE), dtype=np.float32)
    for k in range(n):
        cx, cy, r = rng.uniform(4, 12), rng.uniform(4, 12), rng.uniform(2, 4)
        if rng.random() < 0.5:
            d = np.sqrt((xx - cx) ** 2 + (yy - cy) ** 2)
        else:
            d = np.maximum(np.abs(xx - cx), np.abs(yy - cy))
        imgs[k, 0] = rng.uniform(0.6, 1.0) / (1 + np.exp(2.0 * (d - r)))
    return torch.from_numpy(imgs + 0.02 * rng.standard_normal(imgs.shape).astype(np.float32))


class SpriteVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(512, 96),
            nn.LeakyReLU(0.1),
        )
        self.stats = nn.Linear(96, 2 * LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 96),
            nn.LeakyReLU(0.1),
            nn.Linear(96, 512),
            nn.LeakyReLU(0.1),
            nn.Unflatten(1, (32, 4, 4)),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def encode(self, x):
        mu, logvar = self.stats(self.enc(x)).chunk(2, dim=1)
        return mu, logvar.clamp(-8, 8)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def elbo_terms(out, x, mu, logvar):
    err = (out - x).pow(2).flatten(1)
    recon = (err.sum(1) if ALT else err.mean(1)).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return recon, kl


@torch.no_grad()
def report(model, x):
    model.eval()
    mu, logvar = model.encode(x)
    mse = F.mse_loss(model.dec(mu), x).item()
    active = int((mu.var(0) > 0.05).sum())
    model.train()
    return mse, active


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    train, valid = draw(3000, rng), draw(300, rng)
    flat = F.mse_loss(train.mean(0, keepdim=True).expand_as(valid), valid).item()
    model = SpriteVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    perm, at = torch.randperm(len(train)), 0
    for step in range(1, STEPS + 1):
        if at + BATCH > len(train):
            perm, at = torch.randperm(len(train)), 0
        x = train[perm[at : at + BATCH]]
        at += BATCH
        out, mu, logvar = model(x)
        recon, kl = elbo_terms(out, x, mu, logvar)
        loss = recon + kl
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == 1:
            print(f"[{step:4d}] loss {loss.item():.4f} recon {recon.item():.4f} kl {kl.item():.4f}")
    mse, active = report(model, valid)
    print(f"final valid pixel mse {mse:.5f} (average image {flat:.5f}) active latents {active}/{LATENT}")


if __name__ == "__main__":
    main()
