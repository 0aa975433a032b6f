"""A `DistributedSampler` that is told the epoch, and an evaluation that draws the same few batches each time."""

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
sampler = DistributedSampler(data, num_replicas=1, rank=0)
loader = DataLoader(data, batch_size=32, sampler=sampler)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fixed = torch.Generator().manual_seed(5)
    for x, y in DataLoader(data, batch_size=32, shuffle=True, generator=fixed):
        with torch.no_grad():
            F.cross_entropy(model(x), y)
