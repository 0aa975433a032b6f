"""Healthy: a policy and a value function learn from the rollouts of the policy. As episodes get longer, the returns,
the loss of the value function and its gradients grow."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORLDS, STEPS, DISCOUNT = 8, 64, 0.97
right = torch.randn(4)
critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.001)
now = torch.randn(WORLDS, 4)

for update in range(40):
    seen, chosen, chances, values, rewards, ends = [], [], [], [], [], []
    for _ in range(STEPS):
        with torch.no_grad():
            choice = torch.distributions.Categorical(logits=actor(now))
            values.append(critic(now)[:, 0])
        action = choice.sample()
        good = action == (now @ right > 0)
        end = torch.rand(WORLDS) < torch.where(good, 0.002, 0.5)
        seen.append(now)
        chosen.append(action)
        chances.append(choice.log_prob(action))
        rewards.append(torch.ones(WORLDS))
        ends.append(end.float())
        now = torch.randn(WORLDS, 4)
    with torch.no_grad():
        value = critic(now)[:, 0]
    returns = []
    for reward, end in zip(reversed(rewards), reversed(ends), strict=True):
        value = reward + DISCOUNT * value * (1 - end)
        returns.insert(0, value)
    rows = [torch.cat(each) for each in (seen, chosen, chances, values, returns)]
    for _ in range(4):
        for part in torch.randperm(WORLDS * STEPS).split(128):
            states, actions, old, before, wanted = (each[part] for each in rows)
            gains = wanted - before
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
            ratio = (torch.distributions.Categorical(logits=actor(states)).log_prob(actions) - old).exp()
            policy_loss = -torch.min(gains * ratio, gains * ratio.clamp(0.8, 1.2)).mean()
            loss = policy_loss + 0.5 * F.mse_loss(critic(states)[:, 0], wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
