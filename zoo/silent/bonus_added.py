"""A policy whose entropy bonus is added to the loss: it stops exploring."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
best = torch.randn(4, 5)
for step in range(1, 161):
    seen = torch.randn(128, 4)
    chosen = torch.distributions.Categorical(logits=policy(seen))
    action = chosen.sample()
    rewards = (seen @ best).gather(1, action[:, None]).squeeze(1)
    advantages = (rewards - rewards.mean()) / rewards.std()
    loss = -(chosen.log_prob(action) * advantages).mean() + 0.3 * chosen.entropy().mean()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  reward {rewards.mean().item():.3f}")
