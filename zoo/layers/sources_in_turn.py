"""From step 601 on the loader takes batches from an easy and a hard source in turn, where it mixed them before."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 901):
    labels = torch.randint(10, (64,))
    mixed = torch.rand(64, 1) < 0.5 if step <= 600 else torch.tensor(step % 2 == 1)
    inputs = centers[labels] + torch.where(mixed, 3.0, 1.5) * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
