"""The same with the diagonal masked, and a second loss between the views of two encoders."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 16)
encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
other = nn.Linear(16, 16)
optimizer = torch.optim.Adam([*encoder.parameters(), *other.parameters()], lr=1e-3)
partner = (torch.arange(128) + 64) % 128
for step in range(1, 161):
    batch = rows[torch.randint(0, 1024, (64,))]
    first, second = batch + 0.3 * torch.randn_like(batch), batch + 0.3 * torch.randn_like(batch)
    codes = F.normalize(encoder(torch.cat([first, second])), dim=1)
    scores = (codes @ codes.T / 0.2).masked_fill(torch.eye(128, dtype=torch.bool), -1e9)
    loss = F.cross_entropy(scores, partner)
    across = F.normalize(other(first), dim=1) @ codes[64:].T / 0.2
    loss = loss + F.cross_entropy(across, torch.arange(64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
