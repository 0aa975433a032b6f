# expect: healthy
# symptom: the total loss of the sequence VAE goes up for long stretches and falls back suddenly (cyclic annealing of the KL weight)
# axis: none
# mended: none
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


@dataclass
class Config:
    length: int = 24
    hidden: int = 48
    latent: int = 6
    batch: int = 64
    n_train: int = 3200
    epochs: int = 9
    lr: float = 4e-3
    cycles: int = 3
    ramp: float = 0.6
    max_beta: float = 1.0
    noise: float = 0.15
    sigma: float = 0.3
    seed: int = 2


class WaveDataset(Dataset):
    """Noisy waves with random period, phase and amplitude."""

    def __init__(self, n, cfg, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(cfg.length)[None]
        period, phase, amp = (
            rng.uniform(7, 20, (n, 1)),
            rng.uniform(0, 2 * math.pi, (n, 1)),
            rng.uniform(0.5, 1.5, (n, 1)),
        )
        x = amp * np.sin(2 * math.pi * t / period + phase) + rng.normal(0, cfg.noise, (n, cfg.length))
        self.x = torch.from_numpy(x.astype(np.float32))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


class SeqVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.encoder = nn.GRU(1, cfg.hidden, batch_first=True, bidirectional=True)
        self.to_stats = nn.Linear(2 * cfg.hidden, 2 * cfg.latent)
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, cfg.length)
        )

    def forward(self, x):
        _, h = self.encoder(x.unsqueeze(-1))
        mu, logvar = self.to_stats(torch.cat([h[0], h[1]], -1)).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


def beta_at(step, total, cfg):
    """Fu et al. 2019: each cycle rises linearly and then holds."""
    pos = (step % math.ceil(total / cfg.cycles)) / math.ceil(total / cfg.cycles)
    return cfg.max_beta * min(1.0, pos / cfg.ramp)


def elbo_terms(recon, x, mu, logvar, sigma):
    nll = 0.5 * ((recon - x) / sigma).pow(2).sum(1).mean()
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
    return nll, kl


@torch.no_grad()
def evaluate(model, loader, sigma):
    model.eval()
    out = np.zeros(3)
    for x in loader:
        recon, mu, logvar = model(x)
        nll, kl = elbo_terms(recon, x, mu, logvar, sigma)
        out += np.array([nll.item(), kl.item(), F.mse_loss(recon, x).item()]) * len(x)
    model.train()
    return out / len(loader.dataset)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    loader = DataLoader(WaveDataset(cfg.n_train, cfg, 1), cfg.batch, shuffle=True, drop_last=True)
    val_loader = DataLoader(WaveDataset(512, cfg, 2), 256)
    model = SeqVAE(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    total, step = cfg.epochs * len(loader), 0
    for epoch in range(cfg.epochs):
        for x in loader:
            beta = beta_at(step, total, cfg)
            recon, mu, logvar = model(x)
            nll, kl = elbo_terms(recon, x, mu, logvar, cfg.sigma)
            loss = nll + beta * kl
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 10 == 0:
                print(
                    f"step {step:4d} beta {beta:.2f} loss {loss.item():.3f} nll {nll.item():.3f} kl {kl.item():.3f}",
                    flush=True,
                )
            step += 1
        nll, kl, mse = evaluate(model, val_loader, cfg.sigma)
        print(f"epoch {epoch} val elbo {-(nll + kl):.3f} nll {nll:.3f} kl {kl:.3f} mse {mse:.4f}", flush=True)


if __name__ == "__main__":
    main()
