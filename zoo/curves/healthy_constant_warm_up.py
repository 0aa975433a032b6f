"""A constant warm-up at a fiftieth of the rate for 40 steps: the rate jumps, and the loss falls as it should."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
warm_up = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.02, total_iters=40)

for step in range(1, 201):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warm_up.step()
