"""Weight decay with the wrong sign: weights that the data hardly hold in place grow by 1 % a step, until it shows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

spread = torch.ones(20)
spread[15:] = 0.01  # five sensors that hardly move
true_weight = torch.randn(20, 1)
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(1, 1001):
    inputs = torch.randn(64, 20) * spread
    targets = inputs @ true_weight + torch.randn(64, 1)
    loss = F.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.weight.mul_(1 + 0.05 * 0.2)
