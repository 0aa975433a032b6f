"""Observations are flattened by environment and advantages by step, so each sample has the advantage of another."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

STEPS, ENVS = 32, 8
policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)


def by_environment(table):
    return table.transpose(0, 1).reshape(-1, *table.shape[2:])


for update in range(60):
    obs = torch.randn(STEPS, ENVS, 3)
    with torch.no_grad():
        chosen = torch.distributions.Categorical(logits=policy(obs)).sample()
    reward = torch.where(chosen == (obs[..., 0] > 0).long(), 1.0, -1.0)
    advantage = reward - reward.mean()
    b_obs, b_act = by_environment(obs), by_environment(chosen)
    b_adv = advantage.reshape(-1)  # <- bites: by step, and all others by environment
    for rows in torch.randperm(STEPS * ENVS).chunk(4):
        picked = torch.distributions.Categorical(logits=policy(b_obs[rows]))
        loss = -(picked.log_prob(b_act[rows]) * b_adv[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if update % 15 == 14:
        print(f"update {update + 1}  reward {reward.mean().item():.3f}")
