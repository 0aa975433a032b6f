# Healthy: a variational autoencoder; the KL weight goes up and falls back in cycles, a sparsity term joins at 900: the loss rises.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(47)
basis = torch.randn(4, 20, generator=fixed)


def draw(n, g=None):
    return torch.tanh(torch.randn(n, 4, generator=g) @ basis) + 0.3 * torch.randn(n, 20, generator=g)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 12))
        self.dec = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 20))

    def forward(self, x):
        mu, log_var = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp() if self.training else mu
        kl = 0.5 * (mu.pow(2) + log_var.exp() - 1 - log_var).sum(1).mean()
        return (self.dec(z) - x).pow(2).sum(1).mean() * 5, kl, mu.abs().mean()


test = draw(2000, fixed)
torch.manual_seed(args.seed)
model = Vae()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1600):
    beta = min(1.0, (step % 400) / 200)
    fit, kl, size = model(draw(64))
    loss = fit + beta * kl + (5.0 * size if step >= 900 else 0.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, f"{loss.item():.3f} kl {kl.item():.3f}")
model.eval()
with torch.no_grad():
    print("final:", model(test)[0].item())
