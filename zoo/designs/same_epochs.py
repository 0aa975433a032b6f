"""Healthy: forty epochs of a small data set in the same order; every batch comes again after four steps."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

labels = torch.randint(10, (256,))
inputs = torch.randn(10, 32)[labels] + torch.randn(256, 32)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=64)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _epoch in range(40):
    for seen, wanted in loader:
        loss = F.cross_entropy(model(seen), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
