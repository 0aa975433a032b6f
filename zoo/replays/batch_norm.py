"""Batch normalisation, whose running statistics are state, and an average of the weights used for evaluations."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)

for step in range(1, 151):
    outputs = model(torch.randn(16, 2, 8) * (1 + step % 5))
    loss = nn.functional.cross_entropy(outputs, torch.randint(0, 4, (16,)))
    if step == 150:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, moving in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(moving, 0.01)
    if step % 25 == 0:
        model.eval()
        with torch.no_grad():
            model(torch.randn(4, 2, 8))
        model.train()
