"""The code of an autoencoder is sampled with `rand_like`."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

basis = torch.randn(4, 24)
encoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)


def sampled(mean, log_variance):
    std = (0.5 * log_variance).exp()
    noise = torch.rand_like(std)  # <- bites
    return mean + noise * std


for step in range(1, 201):
    x = torch.randn(64, 4) @ basis
    mean, log_variance = encoder(x).chunk(2, 1)
    rebuilt = F.mse_loss(decoder(sampled(mean, log_variance)), x, reduction="sum") / len(x)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum() / len(x)
    loss = rebuilt + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
