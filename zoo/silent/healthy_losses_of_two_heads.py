"""A body adds up the losses of two heads on purpose; the first head is updated in between."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
first, second = nn.Linear(32, 4), nn.Linear(32, 1)
of_body = torch.optim.Adam([*body.parameters(), *second.parameters()], lr=2e-3)
of_first = torch.optim.Adam(first.parameters(), lr=2e-3)
rule = torch.randn(16, 4)

for step in range(1, 201):
    inputs = torch.randn(64, 16)
    scores = inputs @ rule
    of_body.zero_grad()
    of_first.zero_grad()
    F.cross_entropy(first(body(inputs)), scores.argmax(1)).backward()
    of_first.step()
    F.mse_loss(second(body(inputs)), scores.max(1, keepdim=True).values / 4).backward()
    of_body.step()
