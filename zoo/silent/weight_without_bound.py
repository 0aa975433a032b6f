"""The weight of the KL term is raised for ever."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WARM_UP = 40
basis = torch.randn(4, 24)
encoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)

for step in range(1, 641):
    x = torch.randn(64, 4) @ basis
    mean, log_variance = encoder(x).chunk(2, 1)
    seen = decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
    rebuilt = F.mse_loss(seen, x, reduction="sum") / len(x)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum() / len(x)
    weight = step / WARM_UP  # <- bites: min(1.0, ...)
    loss = rebuilt + weight * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(f"step {step}  loss {loss.item():.2f}  rebuilt {rebuilt.item():.2f}")
