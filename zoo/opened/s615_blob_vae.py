# expect: sick
# symptom: the VAE's loss falls, but every reconstruction is the same blurred average picture
# axis: loss
# cause: the reconstruction error is averaged over the pixels while the KL term is summed over the latents, so the KL outweighs it by a factor of the number of pixels and the posterior collapses to the prior
# says: (posterior.?collapse|(kl|kullback|regulari[sz]\w+).{0,100}(too (large|strong|high|heavy|big)|dominat|outweigh|over.?weigh|overwhelm|weight(ed)? too|collapse|reduction|summed|vanish|to zero|imbalance|mis.?scal)|(recon\w*|bce|likelihood).{0,100}(averag|mean|per.?pixel|reduction|too small|under.?weigh|down.?weigh|outweigh|dominated|mis.?scal).{0,120}(kl|pixel|sum)|latents? .{0,60}(ignored|unused|carr(y|ies) no|collapsed))
# onset_step: 1
# fix: sum the reconstruction error over the pixels (then average over the batch) as for the KL
# mended: with MENDED=1 the reconstruction term is summed over pixels and averaged over the batch
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)
np.random.seed(5)
MENDED = os.environ.get("MENDED") == "1"

SIDE = 16
LATENT = 6


def make_images(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    out = np.zeros((n, 1, SIDE, SIDE), dtype=np.float32)
    for i in range(n):
        cx, cy = rng.uniform(3, 13, 2)
        sx, sy = rng.uniform(1.2, 3.0, 2)
        a = rng.uniform(0.7, 1.0)
        out[i, 0] = a * np.exp(-((xx - cx) ** 2 / (2 * sx * sx) + (yy - cy) ** 2 / (2 * sy * sy)))
    return torch.from_numpy(out)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, 128),
            nn.ReLU(),
        )
        self.mu = nn.Linear(128, LATENT)
        self.logvar = nn.Linear(128, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128),
            nn.ReLU(),
            nn.Linear(128, 32 * 16),
            nn.ReLU(),
            nn.Unflatten(1, (32, 4, 4)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def vae_loss(logits, x, mu, logvar):
    if MENDED:
        recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    else:
        recon = F.binary_cross_entropy_with_logits(logits, x)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return recon + kl, recon, kl


@torch.no_grad()
def validate(model, x):
    model.eval()
    mu = model.mu(model.enc(x))
    rec = torch.sigmoid(model.dec(mu))
    base = ((x.mean(0, keepdim=True) - x) ** 2).mean()
    err = ((rec - x) ** 2).mean()
    model.train()
    return 1 - (err / base).item()


def main():
    loader = DataLoader(TensorDataset(make_images(2048, 0)), batch_size=64, shuffle=True, drop_last=True)
    val = make_images(256, 1)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(18):
        for (x,) in loader:
            logits, mu, logvar = model(x)
            loss, recon, kl = vae_loss(logits, x, mu, logvar)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 48 == 0:
                print(f"step {step} loss {loss.item():.4f} recon {recon.item():.4f} kl {kl.item():.4f}", flush=True)
        if epoch % 3 == 2:
            print(f"epoch {epoch} variance explained by reconstructions {validate(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
