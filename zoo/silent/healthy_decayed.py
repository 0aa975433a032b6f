"""Healthy: weight decay ten times the usual one, clipping at each update, a penalty of the outputs."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1.0)

for step in range(1, 121):
    x = torch.randn(32, 16)
    scores = model(x)
    loss = F.cross_entropy(scores, x[:, :4].argmax(1)) + 1e-3 * scores.square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))  # its norm, to be printed
