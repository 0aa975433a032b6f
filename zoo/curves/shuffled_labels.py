"""From step 901 on the loader shuffles images and labels apart, each with a permutation of its own."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

prototypes = torch.randn(10, 20)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 1101):
    labels = torch.randint(10, (64,))
    images = prototypes[labels] + torch.randn(64, 20)
    if step > 900:
        images, labels = images[torch.randperm(64)], labels[torch.randperm(64)]
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
