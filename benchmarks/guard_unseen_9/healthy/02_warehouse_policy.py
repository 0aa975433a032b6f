# HEALTHY. A picker in a warehouse learns by policy gradient with a value baseline (Adam): the aisles grow longer at steps 130 and 260 as
# the curriculum has it, the returns fall and the value loss jumps each time, the policy's loss changes its sign all the time.
# A guard has nothing to do. The final figure is the mean number of moves to the goal from fixed starts.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

STEPS, PICKERS, HORIZON = 390, 48, 12
world = torch.Generator().manual_seed(12)
moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Mind(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, 4), nn.Linear(width, 1)

    def forward(self, where, goal):
        h = self.body(torch.cat([where, goal], 1).float() / 4)
        return self.policy(h), self.value(h).squeeze(1)


def walk(mind, where, goal, greedy=False):
    """One episode of every picker: log-probabilities, values, entropies, rewards, moves, all (HORIZON, count)."""
    logs, values, entropies, rewards, needed = [], [], [], [], []
    for _ in range(HORIZON):
        logits, value = mind(where, goal)
        chance = torch.distributions.Categorical(logits=logits)
        choice = logits.argmax(1) if greedy else chance.sample()
        there = (where == goal).all(1)
        before = (where - goal).abs().sum(1)
        where = torch.where(there[:, None], where, where + moves[choice])
        logs.append(chance.log_prob(choice) * ~there)
        entropies.append(chance.entropy() * ~there)
        values.append(value)
        rewards.append((before - (where - goal).abs().sum(1)).float() - 0.2 * (~there).float())
        needed.append((~there).float())
    return [torch.stack(rows) for rows in (logs, values, entropies, rewards, needed)]


def places(count, reach, generator=None):
    return torch.randint(-reach, reach + 1, (2, count, 2), generator=generator)


held_out = places(400, 4, world)
torch.manual_seed(args.seed)
mind = Mind()
optimizer = torch.optim.Adam(mind.parameters(), lr=3e-3)
for step in range(STEPS):
    reach = 1 if step < 130 else 2 if step < 260 else 4
    logs, values, entropies, rewards, _ = walk(mind, *places(PICKERS, reach))
    future = rewards.flip(0).cumsum(0).flip(0)
    gain = (future - values).detach()
    policy_loss = -(logs * gain / (gain.std() + 1e-3)).mean()
    value_loss = F.mse_loss(values, future)
    loss = policy_loss + 0.1 * value_loss - 0.01 * entropies.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f} return {rewards.sum(0).mean().item():.2f}")
with torch.no_grad():
    print("final:", walk(mind, *held_out, greedy=True)[4].sum(0).mean().item())
