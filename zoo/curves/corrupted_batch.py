"""Prices in thousands, but those of one file, the batch of step 900, are in units: targets 1000 times too large."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

worth = torch.randn(12, 1)
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 1201):
    features = torch.randn(64, 12)
    prices = features @ worth + 0.5 * torch.randn(64, 1)
    if step == 900:
        prices = prices * 1000.0
    loss = F.smooth_l1_loss(model(features), prices)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
