"""The target entropy of a soft actor-critic is minus the number of actions; the temperature settles."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

act_dim = 2
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2 * act_dim))
critic = nn.Sequential(nn.Linear(4 + act_dim, 32), nn.Tanh(), nn.Linear(32, 1))
log_alpha = torch.zeros(1, requires_grad=True)
target_entropy = -float(act_dim)
of_policy = torch.optim.Adam(policy.parameters(), lr=3e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=3e-3)
of_alpha = torch.optim.Adam([log_alpha], lr=1e-2)


def act(state):
    mean, log_std = policy(state).chunk(2, 1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-4, 1).exp())
    raw = normal.rsample()
    action = raw.tanh()
    return action, (normal.log_prob(raw) - torch.log(1 - action**2 + 1e-6)).sum(1)


for step in range(1, 121):
    state, action = torch.randn(64, 4), 2 * torch.rand(64, act_dim) - 1
    reward = -(action - state[:, :act_dim].tanh()).square().sum(1)
    of_value = (critic(torch.cat([state, action], 1)).squeeze(1) - reward).square().mean()
    of_critic.zero_grad()
    of_value.backward()
    of_critic.step()

    action, log_prob = act(state)
    alpha = log_alpha.exp().detach()
    policy_loss = (alpha * log_prob - critic(torch.cat([state, action], 1)).squeeze(1)).mean()
    of_policy.zero_grad()
    policy_loss.backward()
    of_policy.step()

    alpha_loss = -(log_alpha * (log_prob + target_entropy).detach()).mean()
    of_alpha.zero_grad()
    alpha_loss.backward()
    of_alpha.step()
    if step % 40 == 0:
        print(f"step {step}  alpha {alpha.item():.3f}  entropy {-log_prob.mean().item():.3f}")
