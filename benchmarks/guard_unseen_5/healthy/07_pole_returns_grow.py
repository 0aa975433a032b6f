# REINFORCE on a pole that must be held upright. As it learns, the walks and the returns grow twentyfold, and so do the losses.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
LONGEST, CROWD = 80, 24


def swing(state, push):
    angle, speed = state.unbind(1)
    speed = speed + 0.05 * (9.0 * torch.sin(angle) + 6.0 * push)
    return torch.stack([angle + 0.05 * speed, speed], 1)


def walks(policy):
    state = 0.1 * torch.randn(CROWD, 2)
    alive = torch.ones(CROWD)
    logs, lives = [], []
    for _ in range(LONGEST):
        choice = torch.distributions.Bernoulli(logits=policy(state)[:, 0])
        action = choice.sample()
        logs.append(choice.log_prob(action))
        lives.append(alive)
        state = swing(state, 2 * action - 1)
        alive = alive * (state[:, 0].abs() < 0.5)
        state = torch.where(alive[:, None] > 0, state, torch.zeros_like(state))
    return torch.stack(logs), torch.stack(lives)


torch.manual_seed(args.seed)
policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(300):
    logs, lives = walks(policy)
    returns = lives.flip(0).cumsum(0).flip(0)
    gain = (returns - returns.sum(1, keepdim=True) / lives.sum(1, keepdim=True).clamp(min=1)) * lives
    loss = -(logs * gain).sum(0).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} mean length {lives.sum(0).mean().item():.1f} loss {loss.item():.3f}")
torch.manual_seed(4207)
with torch.no_grad():
    print("final:", LONGEST - sum(walks(policy)[1].sum(0).mean().item() for _ in range(10)) / 10)
