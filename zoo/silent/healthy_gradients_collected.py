"""Healthy: updates of many small batches each; at the end squared gradients are collected without an update.

The last pass is that of an importance of weights (elastic weight consolidation), after an attack on the inputs.
"""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

PARTS = 12
model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
truth = torch.randn(10, 3)


def batch():
    x = torch.randn(16, 10)
    return x, (x @ truth).argmax(1)


for _ in range(60):
    optimizer.zero_grad()
    for _ in range(PARTS):
        x, y = batch()
        (nn.functional.cross_entropy(model(x), y) / PARTS).backward()
    optimizer.step()

for _ in range(100):  # where is the loss most sensitive?
    x, y = batch()
    x.requires_grad_()
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()

importance = [torch.zeros_like(one) for one in model.parameters()]
for _ in range(200):
    x, y = batch()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    for kept, one in zip(importance, model.parameters(), strict=True):
        kept += one.grad**2
