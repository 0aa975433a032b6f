# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: loss
# cause: a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# says: sum|batch|row
# onset_step: 0
# fix: sum the term per row
# mended: yes
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class VAEConfig:
    side: int = 8
    latent: int = 6
    hidden: int = 64
    batch_size: int = 64
    epochs: int = 4
    lr: float = 2e-3


def bars(n, side):
    """Binary images made of random horizontal and vertical bars."""
    rows = (torch.rand(n, side, 1) < 0.2).float()
    cols = (torch.rand(n, 1, side) < 0.2).float()
    return torch.clamp(rows + cols, max=1.0).view(n, -1)


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.side**2
        self.enc = nn.Sequential(nn.Linear(d, cfg.hidden), nn.ReLU())
        self.mu = nn.Linear(cfg.hidden, cfg.latent)
        self.logvar = nn.Linear(cfg.hidden, cfg.latent)
        self.dec = nn.Sequential(nn.Linear(cfg.latent, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def negative_elbo(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(dim=1)
    terms = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())
    kl = terms.sum(dim=1) if MENDED else terms.sum()
    return (rec + kl).mean()


def main():
    cfg = VAEConfig()
    torch.manual_seed(6)
    train = DataLoader(TensorDataset(bars(896, cfg.side)), cfg.batch_size, shuffle=True)
    held_out = bars(256, cfg.side)
    vae = VAE(cfg)
    opt = torch.optim.Adam(vae.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        vae.train()
        running = 0.0
        for (x,) in train:
            logits, mu, logvar = vae(x)
            loss = negative_elbo(logits, x, mu, logvar)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        vae.eval()
        with torch.no_grad():
            logits, mu, _ = vae(held_out)
            bit_err = ((logits > 0).float() != held_out).float().mean().item()
        print(f"epoch {epoch} loss {running / len(train):.3f} bit error {bit_err:.3f}")


if __name__ == "__main__":
    main()
