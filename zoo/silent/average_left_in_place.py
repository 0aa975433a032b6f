"""The backup of the weights is no copy, so the average that is put in for an evaluation stays in."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
average = [one.detach().clone() for one in model.parameters()]
held_out = torch.randn(64, 4)

for step in range(1, 161):
    x = torch.randn(32, 4)
    loss = F.mse_loss(model(x)[:, 0], x.sum(1).tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, one in zip(average, model.parameters(), strict=True):
            kept.lerp_(one, 0.003)
        if step % 40 == 0:
            backup = [one.data for one in model.parameters()]  # <- bites: the tensors themselves
            for kept, one in zip(average, model.parameters(), strict=True):
                one.copy_(kept)
            print(f"step {step}  loss {loss.item():.4f}  of the average {model(held_out).var().item():.4f}")
            for kept, one in zip(backup, model.parameters(), strict=True):
                one.copy_(kept)
