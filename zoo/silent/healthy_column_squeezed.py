"""The advantage is a row, as the log-probability is; beside it all pairs of a batch are ranked, on purpose."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
value = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
best = torch.randn(6, 4)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-3)
for step in range(1, 161):
    states = torch.randn(64, 6)
    chosen = torch.distributions.Categorical(logits=policy(states))
    actions = chosen.sample()
    returns = (actions == (states @ best).argmax(1)).float()
    baseline = value(states).squeeze(1)
    loss = -(chosen.log_prob(actions) * (returns - baseline).detach()).mean()
    loss = loss + nn.functional.mse_loss(baseline, returns)
    better = torch.sign(returns[:, None] - returns[None, :])
    loss = loss + 0.1 * nn.functional.softplus(-better * (baseline[:, None] - baseline[None, :])).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  return {returns.mean().item():.3f}")
