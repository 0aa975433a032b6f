# A policy for a chain of valves by REINFORCE with a learned baseline: at steps 200 and 400 the plant is made harder (more noise in the
# sensors, narrower bands), so the returns fall and come back only in part. Adam; the final loss is the negative mean reward.
import argparse

import torch
import torch.nn as nn

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, TIME, SIZE, MOVES = 600, 96, 10, 4, 5
LEVELS = [(0, 0.1, 1.5), (200, 0.25, 0.8), (400, 0.4, 0.5)]
world = torch.Generator().manual_seed(8606)
drift = torch.eye(SIZE) + 0.15 * torch.randn(SIZE, SIZE, generator=world)
effect = torch.randn(MOVES, SIZE, generator=world)
effect = effect - effect.mean(0)


def level_at(step):
    return [level[1:] for level in LEVELS if step >= level[0]][-1]


class Policy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SIZE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.move = nn.Linear(width, MOVES)
        self.value = nn.Linear(width, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.move(hidden), self.value(hidden).squeeze(-1)


def play(model, count, noise, band, generator=None):
    state = torch.randn(count, SIZE, generator=generator)
    logs, values, rewards, spread = [], [], [], []
    for _ in range(TIME):
        seen = state + noise * torch.randn(count, SIZE, generator=generator)
        score, value = model(seen)
        share = torch.softmax(score, -1)
        move = torch.multinomial(share.detach(), 1, generator=generator)
        logs.append(torch.log_softmax(score, -1).gather(1, move).squeeze(1))
        values.append(value)
        spread.append(-(share * torch.log_softmax(score, -1)).sum(-1).mean())
        state = (state @ drift + 0.6 * effect[move.squeeze(1)]).clamp(-4, 4)
        off = state.pow(2).mean(1).sqrt()
        rewards.append(-off + (off < band).float())
    return torch.stack(logs), torch.stack(values), torch.stack(rewards), torch.stack(spread).mean()


torch.manual_seed(args.seed)
model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(STEPS):
    logs, values, rewards, spread = play(model, BATCH, *level_at(step))
    future = rewards.flip(0).cumsum(0).flip(0)
    better = future - values.detach()
    better = better / (better.std() + 1e-6)
    loss = -(logs * better).mean() + 0.05 * (future - values).pow(2).mean() - 0.01 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} return {rewards.sum(0).mean().item():.3f}")
model.eval()
with torch.no_grad():
    rewards = play(model, 3000, *LEVELS[-1][1:], generator=world)[2]
    print("final:", -rewards.mean().item())
