"""Healthy: all rows in every step, from a loader whose batch is the whole data set, and the head alone is trained."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

inputs = torch.randn(200, 16)
loader = DataLoader(TensorDataset(inputs, inputs[:, 0]), batch_size=200)
features = nn.Sequential(nn.Linear(16, 64), nn.Tanh()).requires_grad_(False)
head = nn.Linear(64, 1)
model = nn.Sequential(features, head)
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.05, momentum=0.9)

for epoch in range(1, 81):
    for x, y in loader:
        loss = F.mse_loss(model(x).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
