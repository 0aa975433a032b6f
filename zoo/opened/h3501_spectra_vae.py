# expect: healthy
# symptom: total loss climbs by half for 100 steps as the KL weight is raised; resembles a divergence
# axis: none
"""VAE for absorption spectra with a KL weight that is raised during the run."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
BINS, LATENT, STEPS, RAMP_FROM, RAMP_TO = 64, 6, 480, 240, 340


def make_spectra(n, seed):
    """Three lines; position of one, width of another and the heights vary."""
    rng = np.random.default_rng(seed)
    x = np.arange(BINS)[None]
    shift, width = rng.uniform(-6, 6, (n, 1)), rng.uniform(1.5, 4.0, (n, 1))
    h = rng.uniform(0.5, 2.0, (n, 3))
    s = h[:, :1] * np.exp(-0.5 * ((x - 16 - shift) / 2.0) ** 2)
    s += h[:, 1:2] * np.exp(-0.5 * ((x - 36) / width) ** 2)
    s += h[:, 2:] * np.exp(-0.5 * ((x - 52) / 2.5) ** 2)
    s += rng.normal(0, 0.05, s.shape)
    return torch.tensor(s, dtype=torch.float32)


class SpectraVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(BINS, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU())
        self.mu = nn.Linear(96, LATENT)
        self.logvar = nn.Linear(96, LATENT)
        self.dec = nn.Sequential(nn.Linear(LATENT, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, BINS))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 4)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return self.dec(z), mu, logvar


def beta_at(step):
    return float(np.clip((step - RAMP_FROM) / (RAMP_TO - RAMP_FROM), 0.0, 1.0))


def endless(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    train, valid = make_spectra(3000, 1), make_spectra(400, 2)
    loader = DataLoader(TensorDataset(train), batch_size=64, shuffle=True, drop_last=True)
    vae = SpectraVAE()
    opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
    noise_var = 0.05**2 * 4
    for step, (x,) in enumerate(endless(loader)):
        if step == STEPS:
            break
        recon, mu, logvar = vae(x)
        rec = 0.5 * ((recon - x) ** 2).sum(1).mean() / noise_var
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        loss = rec + beta_at(step) * kl
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(vae.parameters(), 50.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():8.2f} rec {rec.item():8.2f} kl {kl.item():6.2f}")
        if (step + 1) % 120 == 0:
            vae.eval()
            with torch.no_grad():
                err = ((vae(valid)[0] - valid) ** 2).mean() / valid.var()
            print(f"step {step:4d} valid unexplained variance {err.item():.4f}")
            vae.train()


if __name__ == "__main__":
    main()
