"""Gradients of two tasks are kept, cleared and put back as their mean before the step: cleared, and not lost."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(512, 12)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
sums = inputs[:, :4].sum(1)
trunk = nn.Sequential(nn.Linear(12, 48), nn.GELU())
heads = nn.ModuleList([nn.Linear(48, 2), nn.Linear(48, 1)])
weights = [*trunk.parameters(), *heads.parameters()]
optimizer = torch.optim.AdamW(weights, lr=3e-3)

for step in range(150):
    rows = torch.randint(0, len(inputs), (32,))
    kept = []
    for task in range(2):
        out = heads[task](trunk(inputs[rows]))
        loss = nn.functional.cross_entropy(out, labels[rows]) if task == 0 else (out[:, 0] - sums[rows]).square().mean()
        loss.backward()
        kept.append([one.grad.clone() if one.grad is not None else torch.zeros_like(one) for one in weights])
        optimizer.zero_grad()
    for one, first, second in zip(weights, *kept, strict=True):
        one.grad = (first + second) / 2
    optimizer.step()
    optimizer.zero_grad()
    if step % 30 == 0:
        print(step, loss.item())
