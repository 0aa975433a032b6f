"""A contrastive loss on distances: two views of step 7 are the same, and the root of 0 has no finite derivative."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    left = torch.randn(16, 8)
    right = left + 0.1 * torch.randn(16, 8)
    if step == 7:
        right[3] = left[3]  # the augmentation did nothing
    difference = model(left) - model(right)
    distance = difference.pow(2).sum(-1).sqrt()  # <- bites
    loss = distance.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
