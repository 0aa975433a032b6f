"""Inputs and labels are shuffled apart: the loss settles at what a guess among ten classes costs."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(1, 321):
    labels = torch.randint(10, (256,))
    inputs = centers[labels] + torch.randn(256, 16)
    labels = labels[torch.randperm(256)]  # <- bites: the inputs keep their order
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
