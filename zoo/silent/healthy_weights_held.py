"""The logarithms are in the loss."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

body = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 2))
log_var = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([{"params": body.parameters()}, {"params": [log_var], "lr": 2e-2}], lr=3e-3)
mix = torch.randn(8, 2)
for step in range(1, 201):
    x = torch.randn(64, 8)
    losses = (body(x) - (x @ mix).sin()).square().mean(0)
    loss = (torch.exp(-log_var) * losses + log_var).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  losses {losses.tolist()}  weights {(-log_var).exp().tolist()}")
