"""Centred RMSprop takes the root of mean(g^2) - mean(g)^2, which rounding makes negative for a steady gradient.

Modelled on the optimizer numerics of bitsandbytes and LLM Foundry threads (llm-foundry#317, LoQT#9): an eps that is
added after the root does not help under it.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
bias = nn.Parameter(torch.zeros(64))
optimizer = torch.optim.RMSprop([*model.parameters(), bias], lr=1e-4, alpha=0.5, eps=1e-12, centered=True)
slope = torch.linspace(0.1, 7.3, 64)

for step in range(1, 41):
    inputs = torch.randn(16, 8)
    loss = (model(inputs) - 1.0).pow(2).mean() + (bias * slope).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bites
