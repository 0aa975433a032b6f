"""Healthy: the parity of three hidden bits. The loss stands at ln 2 for 400 steps and falls late."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 1501):
    bits = torch.randint(2, (64, 30)).float()
    parity = bits[:, :3].sum(1) % 2
    loss = F.binary_cross_entropy_with_logits(model(2 * bits - 1).squeeze(1), parity)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
