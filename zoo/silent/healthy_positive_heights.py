"""Bounded outputs whose targets are inside: a softplus for counts, a tanh for clipped angles, masked places of -1."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

measured = torch.randn(1024, 8)
counts = torch.poisson((measured @ torch.randn(8, 1) / 6).clamp(-2, 1.5).exp())
angles = (measured @ torch.randn(8, 1)).clamp(-1, 1)
shares = torch.where(torch.rand(1024, 1) < 0.2, -1.0, (measured @ torch.randn(8, 1)).sigmoid())
body = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(body.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    count, angle, share = body(measured[batch]).split(1, dim=1)
    loss = nn.functional.mse_loss(nn.functional.softplus(count), counts[batch])
    loss = loss + (torch.tanh(angle) - angles[batch]).abs().mean()
    known = (shares[batch] >= 0).float()
    loss = loss + ((torch.sigmoid(share) - shares[batch]).square() * known).sum() / known.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
