"""Healthy: two networks against each other, with an optimizer each. What one optimizer does not hold the other does."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
optimizer_of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))
yes, no = torch.ones(64, 1), torch.zeros(64, 1)

for step in range(1, 151):
    real, made = torch.randn(64, 2) * torch.tensor([1.0, 0.3]) + 2, generator(torch.randn(64, 8))
    loss = F.binary_cross_entropy_with_logits(judge(real), yes)
    loss = loss + F.binary_cross_entropy_with_logits(judge(made.detach()), no)
    optimizer_of_judge.zero_grad()
    loss.backward()
    optimizer_of_judge.step()
    loss = F.binary_cross_entropy_with_logits(judge(made), yes)
    optimizer_of_generator.zero_grad()
    loss.backward()
    optimizer_of_generator.step()
