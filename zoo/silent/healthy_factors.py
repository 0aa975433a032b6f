"""Models that are linear on purpose: a factorisation through four directions, and a layer of its own."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 4) @ torch.randn(4, 16)
answers = (rows @ torch.randn(16, 5)).argmax(1)
factors = nn.Sequential(nn.Linear(16, 4, bias=False), nn.Linear(4, 16))
probe = nn.Linear(16, 5)
optimizer = torch.optim.Adam([*factors.parameters(), *probe.parameters()], lr=1e-2)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    loss = F.mse_loss(factors(rows[batch]), rows[batch]) + F.cross_entropy(probe(rows[batch]), answers[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
