"""The advantage in the loss of a policy is detached."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, state):
        hidden = self.body(state)
        return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)[:, 0]


model = Both()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 201):
    state = torch.randn(64, 4)
    policy, values = model(state)
    action = policy.sample()
    rewards = (action == state[:, :3].argmax(1)).float() + state[:, 3]
    advantage = (rewards - values).detach()
    log_prob = policy.log_prob(action)
    loss = -(log_prob * advantage).mean() + F.mse_loss(values, rewards) - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
