# A policy for a bandit with contexts: REINFORCE with a learned baseline and an entropy bonus, Adam. The result is the regret
# on fixed contexts.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

INPUT, ARMS, BATCH, STEPS = 12, 6, 256, 1200
world = torch.Generator().manual_seed(66)
inner = torch.randn(INPUT, 16, generator=world) / INPUT**0.5
outer = torch.randn(16, ARMS, generator=world) / 2


def worth(context):
    return torch.tanh(1.5 * context @ inner) @ outer


class Agent(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(INPUT, width), nn.Tanh(), nn.Linear(width, ARMS))
        self.value = nn.Sequential(nn.Linear(INPUT, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, context):
        return self.policy(context).log_softmax(1), self.value(context)[:, 0]


held_out = torch.randn(4000, INPUT, generator=world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(600 + args.seed)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
for step in range(STEPS):
    bonus = 0.02
    if step >= 660 and not args.twin:
        bonus = 2.0
    context = torch.randn(BATCH, INPUT, generator=stream)
    logs, value = agent(context)
    arm = torch.multinomial(logs.detach().exp(), 1, generator=stream)
    reward = worth(context).gather(1, arm)[:, 0] + 0.3 * torch.randn(BATCH, generator=stream)
    gain = (reward - value).detach()
    entropy = -(logs.exp() * logs).sum(1).mean()
    loss = -(gain * logs.gather(1, arm)[:, 0]).mean() + 0.5 * (reward - value).square().mean() - bonus * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 5.0)
    optimizer.step()
    schedule.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f} reward {reward.mean().item():.3f} entropy {entropy.item():.3f}")
with torch.no_grad():
    best = worth(held_out).amax(1)
    reached = (agent(held_out)[0].exp() * worth(held_out)).sum(1)
    print("final:", (best - reached).mean().item())
