# expect: sick
# symptom: the VAE's loss falls quickly to a plateau; all reconstructions look like the same grey mean image and samples have no variety
# axis: loss
# cause: the reconstruction error is averaged over all pixels while the KL term is summed over the latent dimensions: the KL weighs hundreds of times too much and the posterior collapses to the prior (KL goes to 0)
# says: posterior.{0,20}collaps|collaps\w*.{0,40}(posterior|latent|kl|prior)|kl\w*.{0,100}(collaps|vanish|too (strong|large|heavy|much|high)|dominat|overweight|over-weight|outweigh|overpower|scale|sum|weight|mismatch|near zero|goes to (zero|0))|(mean|averag)\w*.{0,80}(recon|mse|pixel).{0,80}(sum|kl)|(latent|encoder).{0,50}(ignored|unused)|sum\w*.{0,50}(pixel|recon|squared error)|recon\w*.{0,60}(sum|mean|averag)
# onset_step: 30
# fix: sum the squared error over the pixels (mean over the batch only), or scale the KL down accordingly
# mended: the reconstruction error is summed over the pixels of each image
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

CONFIG = {
    "model": {"size": 16, "channels": 8, "latent": 8},
    "data": {"n_train": 1536, "n_val": 256, "batch_size": 48},
    "optim": {"lr": 3e-3, "epochs": 9},
    "seed": 1,
}


class BlobDataset(Dataset):
    """Two soft blobs at random places, pixel values 0..1."""

    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[:size, :size]
        imgs = np.zeros((n, size, size))
        for _ in range(2):
            cy, cx = rng.uniform(3, size - 3, (2, n, 1, 1))
            s = rng.uniform(1.2, 2.5, (n, 1, 1))
            imgs += np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * s * s))
        self.x = torch.from_numpy(imgs.clip(0, 1).astype(np.float32))[:, None]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


class VAE(nn.Module):
    def __init__(self, size, channels, latent):
        super().__init__()
        c, s = channels, size // 4
        self.encoder = nn.Sequential(
            nn.Conv2d(1, c, 4, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.to_mu = nn.Linear(2 * c * s * s, latent)
        self.to_logvar = nn.Linear(2 * c * s * s, latent)
        self.from_z = nn.Linear(latent, 2 * c * s * s)
        self.decoder = nn.Sequential(
            nn.ReLU(),
            nn.Unflatten(1, (2 * c, s, s)),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(c, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.decoder(self.from_z(z)), mu, logvar


def vae_loss(recon, x, mu, logvar):
    rec = F.mse_loss(recon, x, reduction="sum") / len(x) if MENDED else F.mse_loss(recon, x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + kl, rec, kl


class Trainer:
    def __init__(self, config):
        m, d, o = config["model"], config["data"], config["optim"]
        self.epochs = o["epochs"]
        self.model = VAE(**m)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=o["lr"])
        self.train_loader = DataLoader(BlobDataset(d["n_train"], m["size"], 1), d["batch_size"], shuffle=True)
        self.val_loader = DataLoader(BlobDataset(d["n_val"], m["size"], 2), d["n_val"])
        self.step, self.best = 0, float("inf")

    def fit(self, ckpt_dir):
        for epoch in range(self.epochs):
            self.model.train()
            for x in self.train_loader:
                recon, mu, logvar = self.model(x)
                loss, rec, kl = vae_loss(recon, x, mu, logvar)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                if self.step % 10 == 0:
                    print(
                        f"step {self.step:4d} loss {loss.item():.4f} rec {rec.item():.4f} kl {kl.item():.4f}",
                        flush=True,
                    )
                self.step += 1
            mse, base = self.validate()
            print(f"epoch {epoch} val pixel mse {mse:.5f} (mean image {base:.5f})", flush=True)
            if mse < self.best:
                self.best = mse
                torch.save(self.model.state_dict(), os.path.join(ckpt_dir, "best.pt"))

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x = next(iter(self.val_loader))
        recon, _, _ = self.model(x)
        return F.mse_loss(recon, x).item(), x.var(0, unbiased=False).mean().item()


def main():
    torch.manual_seed(CONFIG["seed"])
    with tempfile.TemporaryDirectory() as ckpt_dir:
        Trainer(CONFIG).fit(ckpt_dir)


if __name__ == "__main__":
    main()
