"""A code that is drawn with rsample(), and pictures of the prior that are drawn with sample()."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self, width=24, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        q = Independent(Normal(mu, (0.5 * logvar).exp()), 1)
        z = q.rsample()
        return self.decoder(z), q


directions = torch.randn(4, 24)
model = VAE()
prior = Independent(Normal(torch.zeros(4), torch.ones(4)), 1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    x = torch.randn(32, 4) @ directions
    decoded, q = model(x)
    loss = F.mse_loss(decoded, x, reduction="none").sum(1).mean() + kl_divergence(q, prior).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        with torch.no_grad():
            shown = model.decoder(prior.sample((2,)))
        print(f"step {step}  loss {loss.item():.3f}  shown {shown.std().item():.3f}")
