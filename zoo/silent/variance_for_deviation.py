"""The code is drawn with exp(logvar) as its standard deviation, and the KL term takes that for the variance."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self, width=24, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        std = torch.exp(logvar)  # <- bites
        return self.decoder(mu + std * torch.randn_like(std)), mu, logvar


directions = torch.randn(4, 24)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    x = torch.randn(32, 4) @ directions
    decoded, mu, logvar = model(x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    loss = F.mse_loss(decoded, x, reduction="none").sum(1).mean() + kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}  kl {kl.item():.3f}")
