"""A classifier takes log-softmax over the rows of the batch: rows compete, and the loss still falls a little."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = torch.randn(12, 5)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 61):
    x = torch.randn(32, 12)
    loss = F.nll_loss(F.log_softmax(model(x), dim=0), (x @ teacher).argmax(1))  # <- bites: dim=0
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
