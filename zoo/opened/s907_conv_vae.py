# expect: sick
# symptom: the VAE's KL drops to zero and every reconstruction is the same blurry mean image
# axis: loss
# cause: the reconstruction loss is averaged over pixels and batch while the KL is summed over both, so the KL outweighs it by orders of magnitude and the posterior collapses to the prior
# says: (kl\w*( term| loss| divergence)?.{0,80}(domin\w*|outweigh\w*|overwhelm\w*|too (strong|large|big|heavy|high)|sum\w*|weight\w*|scale|swamp\w*|crush\w*|dwarf\w*|reduc\w*|over-?weight\w*)|posterior.{0,10}collaps\w*|(recon\w*).{0,80}(outweigh\w*|dominated|overwhelmed|drowned|averaged|mean|too (small|weak)|under-?weight\w*|swamped|dwarfed)|(reduction|loss terms?|one term).{0,60}(mismatch\w*|inconsisten\w*|domin\w*|sum.{0,20}mean|mean.{0,20}sum))
# onset_step: 1
# fix: sum the reconstruction loss over the pixels and average both terms over the batch
# mended: recon is summed over pixels, and both terms are divided by the batch size
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    size: int = 16
    latent: int = 8
    width: int = 16
    batch: int = 64
    epochs: int = 12
    lr: float = 2e-3
    seed: int = 5


def bars_and_discs(n, size):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1) * (size - 6) + 3
    r = torch.rand(n, 1, 1) * 2 + 2
    disc = torch.sigmoid(3 * (r - ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()))
    bar = torch.sigmoid(3 * (r / 2 - (xx - cx).abs()))
    pick = (torch.rand(n, 1, 1) < 0.5).float()
    return (pick * disc + (1 - pick) * bar).unsqueeze(1)


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w, s = cfg.width, cfg.size // 4
        self.enc = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * w * s * s, 64),
            nn.ReLU(),
        )
        self.mu, self.logvar = nn.Linear(64, cfg.latent), nn.Linear(64, cfg.latent)
        self.dec = nn.Sequential(
            nn.Linear(cfg.latent, 64),
            nn.ReLU(),
            nn.Linear(64, 2 * w * s * s),
            nn.ReLU(),
            nn.Unflatten(1, (2 * w, s, s)),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(w, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        return mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.dec(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    if MENDED:
        recon = F.binary_cross_entropy(recon_x, x, reduction="sum") / len(x)
        kld = kld / len(x)
    else:
        recon = F.binary_cross_entropy(recon_x, x)
    return recon + kld, recon, kld


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.loader = DataLoader(TensorDataset(bars_and_discs(2560, cfg.size)), batch_size=cfg.batch, shuffle=True)
        self.test = bars_and_discs(256, cfg.size)
        self.model = VAE(cfg)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.step = 0

    def fit(self):
        for epoch in range(self.cfg.epochs):
            for (x,) in self.loader:
                recon_x, mu, logvar = self.model(x)
                loss, recon, kld = loss_function(recon_x, x, mu, logvar)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % 20 == 0:
                    print(f"step {self.step} loss {loss.item():.4f} recon {recon.item():.4f} kld {kld.item():.5f}")
            self.evaluate(epoch)

    @torch.no_grad()
    def evaluate(self, epoch):
        mu, _ = self.model.encode(self.test)
        mse = F.mse_loss(self.model.dec(mu), self.test).item()
        base = F.mse_loss(self.test.mean(0, keepdim=True).expand_as(self.test), self.test).item()
        print(f"--- epoch {epoch}: test mse {mse:.4f} (mean image {base:.4f}), std of mu {mu.std(0).mean():.3f}")


if __name__ == "__main__":
    Trainer(Config()).fit()
