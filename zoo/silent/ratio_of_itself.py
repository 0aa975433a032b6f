"""Four passes over each rollout with a clipped ratio, whose old log-probability is computed anew in each pass."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
best = torch.randn(6, 4)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for rollout in range(1, 41):
    states = torch.randn(128, 6)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=policy(states)).sample()
    reward = (actions == (states @ best).argmax(1)).float()
    advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
    for epoch in range(4):
        now = torch.distributions.Categorical(logits=policy(states)).log_prob(actions)
        ratio = (now - now.detach()).exp()  # <- bites
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rollout % 10 == 0:
        print(f"rollout {rollout}  reward {reward.mean().item():.3f}")
