# expect: healthy
# symptom: the total loss jumps up each time the KL weight ramps again; resembles a diverging or collapsing VAE
# axis: loss
"""VAE on 12x12 blob images with a cyclical KL weight (three ramps over the run)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIDE, LATENT, STEPS, CYCLES, BETA_MAX = 12, 6, 450, 3, 1.0


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    cx, cy = (2 + 7 * torch.rand(2, n, 1, 1, generator=g)).unbind(0)
    w = 1.2 + 1.6 * torch.rand(n, 1, 1, generator=g)
    ax = torch.arange(SIDE).float()
    d = (ax.view(1, 1, -1) - cx) ** 2 + (ax.view(1, -1, 1) - cy) ** 2
    return torch.exp(-d / (2 * w**2)).reshape(n, -1)


class VAE(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(SIDE * SIDE, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.mu = nn.Linear(width, LATENT)
        self.logvar = nn.Linear(width, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, SIDE * SIDE)
        )

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h).clamp(-8, 4)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def beta_at(step):
    """Zero to BETA_MAX over the first half of a cycle, then flat."""
    period = STEPS // CYCLES
    return BETA_MAX * min(1.0, (step % period) / (period / 2))


def terms(model, x):
    recon, mu, logvar = model(x)
    # pixel noise of 0.1: squared error / (2 * 0.1 ** 2), summed over the pixels
    rec = F.mse_loss(recon, x, reduction="sum") / (2 * 0.1**2) / len(x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


@torch.no_grad()
def validate(model, x):
    model.eval()
    rec, kl = terms(model, x)
    recon = model.dec(model.encode(x)[0])
    r2 = 1 - F.mse_loss(recon, x) / x.var()
    active = (model.encode(x)[0].var(0) > 0.05).sum().item()
    model.train()
    return (rec + BETA_MAX * kl).item(), r2.item(), active


def main():
    torch.manual_seed(2)
    train, val = blobs(4000, 1), blobs(500, 2)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        x = train[torch.randint(len(train), (96,))]
        beta = beta_at(step)
        rec, kl = terms(model, x)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 50.0)
        opt.step()
        if step % 15 == 0:
            print(
                f"step {step:4d}  loss {loss.item():9.3f}  rec {rec.item():9.3f}  kl {kl.item():7.3f}  beta {beta:.2f}"
            )
        if (step + 1) % 150 == 0:
            neg_elbo, r2, active = validate(model, val)
            print(f"-- val -ELBO {neg_elbo:.3f}  reconstruction R2 {r2:.4f}  active units {active}")


if __name__ == "__main__":
    main()
