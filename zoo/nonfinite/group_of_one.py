"""Advantages are rewards over the deviation within their group. A group of one has no deviation: NaN.

Modelled on unsloth#3129 and trl's GRPO threads: the last batch of an epoch holds one completion.
"""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

for step in range(1, 11):
    states = torch.randn(1 if step == 7 else 8, 8)
    scores = torch.log_softmax(policy(states), dim=-1)
    chosen = scores.gather(1, torch.randint(0, 4, (len(states), 1))).squeeze(1)
    rewards = torch.rand(len(states))
    advantages = (rewards - rewards.mean()) / (rewards.var().sqrt() + 1e-4)  # <- bites
    loss = -(advantages * chosen).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
