# expect: healthy
# symptom: the total loss rises steadily from step 100 to step 300 (the KL weight is annealed from 0 to 1), as if the run diverged
# axis: loss
# cause: none
import torch
from torch import nn

torch.manual_seed(66)
basis = torch.randn(5, 48)


def batch(n=64):
    return torch.tanh(torch.randn(n, 5) @ basis * 0.6) + 0.1 * torch.randn(n, 48)


class VAE(nn.Module):
    def __init__(self, z=8):
        super().__init__()
        self.e = nn.Sequential(nn.Linear(48, 96), nn.SiLU(), nn.Linear(96, 2 * z))
        self.d = nn.Sequential(nn.Linear(z, 96), nn.SiLU(), nn.Linear(96, 48))

    def forward(self, x):
        mu, lv = self.e(x).chunk(2, 1)
        return self.d(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv


vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
for step in range(900):
    beta = min(1.0, max(0.0, (step - 100) / 200))
    x = batch()
    y, mu, lv = vae(x)
    rec = (y - x).pow(2).sum(1).mean() / 0.2
    kl = (mu.pow(2) + lv.exp() - 1 - lv).sum(1).mean() / 2
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0 or step == 899:
        print(f"step {step} beta {beta:.2f} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f}")
