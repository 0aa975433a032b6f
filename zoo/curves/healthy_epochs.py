"""Healthy: eight epochs over the same 150 batches in the same order. The loss falls in stairs, one at each epoch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

prototypes = torch.randn(10, 20)
labels = torch.randint(10, (150 * 16,))
images = prototypes[labels] + 2.0 * torch.randn(len(labels), 20)
model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for epoch in range(8):
    for batch in torch.arange(len(labels)).split(16):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
