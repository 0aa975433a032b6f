"""Batches of four classes with eight rows each, as metric learning draws them; a critic gets one side at a time."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

CLASSES, AT_ONCE, ROWS = 20, 4, 8
centres = torch.randn(CLASSES, 12)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
critic = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW([*model.parameters(), *critic.parameters()], lr=3e-3)

for step in range(160):
    y = torch.randperm(CLASSES)[:AT_ONCE].repeat_interleave(ROWS)
    x = centres[y] + 0.3 * torch.randn(len(y), 12)
    side = torch.full((len(y),), step % 2)  # real rows in one step, noise in the next
    judged = critic(x if step % 2 else torch.randn_like(x))
    loss = F.cross_entropy(model(x), y) + F.cross_entropy(judged, side)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
