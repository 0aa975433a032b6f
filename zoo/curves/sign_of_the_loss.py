"""From step 100 on the loss is multiplied by a weight that was scheduled below zero: what is wrong grows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 181):
    x = torch.randn(64, 16)
    weight = 1.0 if step < 100 else -1.0
    loss = weight * F.cross_entropy(model(x), (2 * x[:, :4]).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
