# Q-learning with a target network and a replay buffer: a cart on a line has to stop at zero. For three steps of the environment (from 300
# on) the reward of one of the 32 carts is read in the wrong unit, -20,000 a step; these transitions stay in the buffer for 130 steps.
import argparse
import copy

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
ap = ap.parse_args()

GAMMA, CARTS, ROOM = 0.95, 32, 130
PUSH = torch.tensor([-1.0, 0.0, 1.0])


def move(state, action):
    x, v = state[:, 0], state[:, 1]
    v = 0.95 * v + 0.25 * PUSH[action]
    x = x + 0.25 * v
    reward = -x.abs() - 0.1 * v.abs()
    hit = x.abs() > 3
    return torch.stack([x.clamp(-3, 3), torch.where(hit, torch.zeros_like(v), v)], 1), reward


def fresh(n, g=None):
    return torch.rand(n, 2, generator=g) * torch.tensor([4.0, 2.0]) - torch.tensor([2.0, 1.0])


pick = torch.Generator().manual_seed(70)
exam = fresh(500, pick)
torch.manual_seed(ap.seed)
q = nn.Sequential(nn.Linear(2, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 3))
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = []
state = fresh(CARTS)
for t in range(500):
    with torch.no_grad():
        best = q(state).argmax(1)
    explore = torch.rand(CARTS) < max(0.1, 1 - t / 150)
    action = torch.where(explore, torch.randint(0, 3, (CARTS,)), best)
    after, reward = move(state, action)
    if 300 <= t < 303 and not ap.twin:
        reward[5] = -20000.0
    buffer.append((state, action, reward, after))
    buffer = buffer[-ROOM:]
    restart = torch.rand(CARTS, 1) < 0.04
    state = torch.where(restart, fresh(CARTS), after)

    s, a, r, s2 = (torch.cat(part) for part in zip(*buffer))
    rows = torch.randint(0, len(s), (256,))
    with torch.no_grad():
        goal = r[rows] + GAMMA * target(s2[rows]).max(1).values
    loss = (q(s[rows]).gather(1, a[rows, None]).squeeze(1) - goal).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), q.parameters()):
            slow.lerp_(fast, 0.05)
    if t % 50 == 0:
        print(t, "td", loss.item(), "reward", reward.median().item())

# what the greedy policy pays on 500 fixed starts
with torch.no_grad():
    pay, s = torch.zeros(500), exam
    for _ in range(40):
        s, r = move(s, q(s).argmax(1))
        pay -= r / 40
print("final:", pay.mean().item())
