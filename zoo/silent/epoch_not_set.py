"""A `DistributedSampler` that is never told the epoch: each epoch has the same batches in the same order."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

EPOCHS = 6
inputs = torch.randn(320, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(320, 5)).argmax(1)
data = TensorDataset(inputs, labels)
sampler = DistributedSampler(data, num_replicas=1, rank=0)  # <- bites: no sampler.set_epoch(epoch) below
loader = DataLoader(data, batch_size=32, sampler=sampler)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for _ in range(EPOCHS):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
