# expect: healthy
# symptom: the total loss climbs in the middle of the run (the KL weight is warmed up); resembles a slow divergence
# axis: loss
"""VAE on daily load curves, KL weight warmed up after a pure reconstruction phase."""

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)
STEPS, BATCH, T = 450, 64, 48


def load_curves(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(T) / T
    peak = rng.uniform(0.25, 0.75, n)[:, None]
    width = rng.uniform(0.05, 0.15, n)[:, None]
    level = rng.normal(0, 0.5, n)[:, None]
    height = rng.uniform(0.8, 2.5, n)[:, None]
    curve = level + height * np.exp(-0.5 * ((t - peak) / width) ** 2)
    return torch.tensor(curve + rng.normal(0, 0.1, (n, T)), dtype=torch.float32)


class CurveVAE(nn.Module):
    def __init__(self, latent=6, hidden=96):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(T, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.to_mu, self.to_logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.dec = nn.Sequential(
            nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, T)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h).clamp(-8, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo_terms(x, rec, mu, logvar, sigma=0.2):
    """Sums over time and latent axes, mean over the batch."""
    nll = (0.5 * ((x - rec) / sigma) ** 2).sum(1).mean()
    kl = (-0.5 * (1 + logvar - mu**2 - logvar.exp())).sum(1).mean()
    return nll, kl


def kl_weight(step):
    """Off for the first 150 steps, then linear up to 1 within 100 steps."""
    return min(1.0, max(0.0, (step - 150) / 100))


def main():
    data, held = load_curves(4000, 1), load_curves(500, 2)
    model = CurveVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.randperm(len(data))
    pos = 0
    for step in range(STEPS):
        if pos + BATCH > len(order):
            order, pos = torch.randperm(len(data)), 0
        x = data[order[pos : pos + BATCH]]
        pos += BATCH
        rec, mu, logvar = model(x)
        nll, kl = elbo_terms(x, rec, mu, logvar)
        beta = kl_weight(step)
        loss = nll + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():8.3f} nll {nll.item():8.3f} kl {kl.item():7.2f} beta {beta:.2f}")
    model.eval()
    with torch.no_grad():
        rec, mu, logvar = model(held)
        nll, kl = elbo_terms(held, rec, mu, logvar)
        mse, var = ((rec - held) ** 2).mean().item(), held.var().item()
    print(f"held out: nll {nll.item():.3f} kl {kl.item():.2f} mse {mse:.4f} explained {1 - mse / var:.3f}")


if __name__ == "__main__":
    main()
