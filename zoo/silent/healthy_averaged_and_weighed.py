"""The reconstruction is averaged over its pixels, and the weight of the divergence makes up for it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

basis = torch.randn(4, 64)
encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)

for step in range(1, 201):
    x = torch.randn(64, 4) @ basis / 4
    mean, log_variance = encoder(x).chunk(2, 1)
    rebuilt = decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
    loss = F.mse_loss(rebuilt, x) + divergence / x.shape[1] / 10
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}  divergence {divergence.item():.3f}")
