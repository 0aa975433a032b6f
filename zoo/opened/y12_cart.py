# expect: sick
# symptom: the loss falls to nearly nothing and the model knows nothing
# axis: data
# cause: the environment returns its own state, which it goes on changing, so all kept entries are one object
# says: alias|(same|one) object|copy|in.?place|mutat|overwrit|reference|shares?\b|shared
# onset_step: 0
# fix: return a copy of the state
# mended: the same with the fix
import os
import random
from collections import deque

import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


class Cart:
    """A puck on a line pushed left or right; it should be kept near zero."""

    def __init__(self, rng):
        self.rng = rng
        self.state = np.zeros(2, dtype=np.float32)

    def reset(self):
        self.state[:] = self.rng.uniform(-1, 1, size=2)
        return self.state

    def step(self, action):
        force = (-1.0, 0.0, 1.0)[action]
        self.state[1] += 0.2 * force
        self.state[1] *= 0.95
        self.state[0] += 0.2 * self.state[1]
        reward = -float(self.state[0] ** 2 + 0.1 * self.state[1] ** 2)
        done = bool(abs(self.state[0]) > 2.0)
        return self.state, reward, done


def snapshot(obs):
    if MENDED:
        return obs.copy()
    return obs


def sample(memory, k):
    s, a, r, s2, d = zip(*random.sample(memory, k))
    return (
        torch.from_numpy(np.stack(s)),
        torch.tensor(a),
        torch.tensor(r),
        torch.from_numpy(np.stack(s2)),
        torch.tensor(d, dtype=torch.float32),
    )


random.seed(0)
torch.manual_seed(0)
env = Cart(np.random.default_rng(0))
q = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
target_q = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
target_q.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=5e-3)
memory = deque(maxlen=1000)

updates, obs, age = 0, snapshot(env.reset()), 0
while updates < 140:
    action = random.randrange(3)
    nxt, reward, done = env.step(action)
    nxt = snapshot(nxt)
    memory.append((obs, action, reward, nxt, done))
    obs, age = nxt, age + 1
    if done or age == 25:
        obs, age = snapshot(env.reset()), 0
    if len(memory) < 200:
        continue
    s, a, r, s2, d = sample(memory, 32)
    with torch.no_grad():
        goal = r + 0.9 * (1 - d) * target_q(s2).max(1).values
    loss = nn.functional.mse_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    updates += 1
    if updates % 20 == 0:
        target_q.load_state_dict(q.state_dict())
        print(f"update {updates} loss {loss.item():.4f}")
