# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: loss
# cause: a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# says: sum|batch|row
# onset_step: 0
# fix: sum the term per row
# mended: yes
import os
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(90)
np.random.seed(90)

CONTEXT, ARMS, USERS = 8, 5, 128
ENT_COEF = 0.01
true_w = torch.randn(CONTEXT, ARMS)


def observe(n):
    return torch.randn(n, CONTEXT)


def click(ctx, arm):
    p = torch.sigmoid((ctx @ true_w).gather(1, arm[:, None]).squeeze(1))
    return torch.bernoulli(p)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(CONTEXT, 32), nn.Tanh())
        self.actor = nn.Linear(32, ARMS)
        self.critic = nn.Linear(32, 1)

    def forward(self, ctx):
        h = self.trunk(ctx)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def update(policy, optimizer):
    ctx = observe(USERS)
    dist, value = policy(ctx)
    arm = dist.sample()
    reward = click(ctx, arm)
    advantage = (reward - value).detach()

    actor_loss = -dist.log_prob(arm) * advantage
    critic_loss = 0.5 * (value - reward).pow(2)
    bonus = dist.entropy() if MENDED else dist.entropy().sum()
    loss = (actor_loss + critic_loss - ENT_COEF * bonus).mean()

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return reward.mean().item(), loss.item()


@torch.no_grad()
def greedy_rate(policy, n=2000):
    ctx = observe(n)
    dist, _ = policy(ctx)
    return click(ctx, dist.probs.argmax(1)).mean().item()


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
history = []
for it in range(60):
    ctr, loss = update(policy, optimizer)
    history.append(ctr)
    if it % 15 == 14:
        print(f"iter {it + 1} ctr {np.mean(history[-15:]):.3f} loss {loss:.3f} greedy {greedy_rate(policy):.3f}")
