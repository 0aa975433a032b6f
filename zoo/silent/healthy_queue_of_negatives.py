"""A queue of negatives fills up in the first steps: the contrastive loss rises while the features get better."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

QUEUE = 2048
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
keys = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
kinds = 2 * torch.randn(64, 24)
queue = torch.zeros(0, 16)

for step in range(1, 241):
    things = kinds[torch.randint(64, (64,))]
    one, other = (things + 0.7 * torch.randn_like(things) for _ in range(2))
    with torch.no_grad():
        for slow, fast in zip(keys.parameters(), model.parameters(), strict=True):
            slow.mul_(0.99).add_(0.01 * fast)
        right = F.normalize(keys(other), dim=1)
    asked = F.normalize(model(one), dim=1)
    scores = torch.cat([(asked * right).sum(1, keepdim=True), asked @ queue.T], 1) / 0.2
    if len(queue):
        loss = F.cross_entropy(scores, torch.zeros(len(one), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}  negatives {len(queue)}  loss {loss.item():.3f}")
    queue = torch.cat([queue, right])[-QUEUE:]
