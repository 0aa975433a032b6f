"""A seed for each step, which makes a step repeatable, and one seed for the pictures that are drawn now and then."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

SEED = 17
directions = torch.randn(4, 24)
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 161):
    generator = torch.Generator().manual_seed(SEED + step)
    clean = torch.randn(32, 4, generator=generator) @ directions
    loss = F.mse_loss(model(clean + 0.7 * torch.randn(clean.shape, generator=generator)), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        fixed = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            shown = model(torch.randn(2, 24, generator=fixed))
        print(f"step {step}  loss {loss.item():.3f}  shown {shown.std().item():.3f}")
