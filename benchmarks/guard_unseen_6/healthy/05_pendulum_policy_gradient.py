# An actor and a critic balance a cart-like system with linear dynamics and rare kicks. Returns over 25 moves, Adam, a loss with
# parts of both signs. The result is the mean cost of the mean policy on fixed starts without kicks.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

HORIZON, BATCH, STEPS = 25, 64, 600
world = torch.Generator().manual_seed(85)


def move(state, push):
    place, speed = state.unbind(1)
    speed = speed + 0.2 * (torch.sin(place) + 2 * push.clamp(-2, 2)) - 0.02 * speed
    place = place + 0.2 * speed
    return torch.stack((place, speed), 1).clamp(-6, 6), place**2 + 0.2 * speed**2 + 0.05 * push**2


class Agent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
        self.critic = nn.Sequential(
            nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.spread = nn.Parameter(torch.tensor(-0.3))


starts = 1.2 * torch.randn(500, 2, generator=world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1500 + args.seed)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=6e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
for step in range(STEPS):
    state = 1.2 * torch.randn(BATCH, 2, generator=stream)
    seen, pushes, costs = [], [], []
    with torch.no_grad():
        for t in range(HORIZON):
            push = agent.actor(state)[:, 0] + agent.spread.exp() * torch.randn(BATCH, generator=stream)
            left = torch.full((BATCH, 1), t / HORIZON)
            seen.append(torch.cat((state, left), 1))
            state, price = move(state, push)
            kick = (torch.rand(BATCH, 1, generator=stream) < 0.004).float()
            state = state + kick * torch.tensor([0.0, 3.0])
            pushes.append(push)
            costs.append(price)
        returns = -torch.stack(costs).flip(0).cumsum(0).flip(0).flatten() / 10
    seen, pushes = torch.cat(seen), torch.cat(pushes)
    value = agent.critic(seen)[:, 0]
    gain = returns - value.detach()
    gain = gain / (gain.std() + 1e-6)
    law = torch.distributions.Normal(agent.actor(seen[:, :2])[:, 0], agent.spread.exp())
    loss = -(gain * law.log_prob(pushes)).mean() + 0.5 * (returns - value).square().mean() - 0.01 * agent.spread
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} return {returns[:BATCH].mean().item():.3f}")
with torch.no_grad():
    state, total = starts, 0.0
    for t in range(HORIZON):
        state, price = move(state, agent.actor(state)[:, 0])
        total += price.mean().item()
print("final:", total / HORIZON)
