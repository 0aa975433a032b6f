"""Healthy: an average of the weights that is given the model's buffers, and one whose statistics are made anew."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
average = copy.deepcopy(model).requires_grad_(False).eval()
plain = AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
rule = torch.randn(12, 4)
held_out = 2.0 + 2.0 * torch.randn(256, 12)
answers = ((held_out - 2.0) @ rule).argmax(1)
rows = []

for step in range(1, 161):
    x = 2.0 + 2.0 * torch.randn(64, 12)
    rows = [*rows[-7:], x]
    loss = F.cross_entropy(model(x), ((x - 2.0) @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    plain.update_parameters(model)
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 0.05)
        for mine, theirs in zip(average.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)
        if step % 40 == 0:
            right = (average(held_out).argmax(1) == answers).float().mean()
            print(f"step {step}  loss {loss.item():.3f}  right {right:.0%}")

update_bn(rows, plain)
plain.eval()
with torch.no_grad():
    print(f"plain average: right {(plain(held_out).argmax(1) == answers).float().mean():.0%}")
