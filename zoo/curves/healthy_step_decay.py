"""Healthy: the learning rate drops to a tenth at step 700, and the loss with it, at once and for good."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

true_weight = torch.randn(40, 1)
model = nn.Linear(40, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[700], gamma=0.1)

for step in range(1, 1501):
    inputs = torch.randn(16, 40)
    targets = inputs @ true_weight + 0.3 * torch.randn(16, 1)
    loss = F.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
