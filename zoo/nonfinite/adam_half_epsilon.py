"""Weights in float16: Adam's eps of 1e-8 is 0 there, and the update of a weight without a gradient 0 / 0.

Modelled on openai/CLIP#40 (NaN after one step of fp16 fine-tuning, whose cure was eps=1e-6 or fp32 weights).
"""

import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)]).half()
optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    features = body(inputs).half()
    loss = (heads[0](features).float() - 1.0).pow(2).mean()
    if step >= 6:
        loss = loss + 0.0 * heads[1](features).float().sum()  # the second head joins in, with no weight yet
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bites
