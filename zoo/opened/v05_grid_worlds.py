# expect: sick
# symptom: the quantity that is to get better gets worse
# axis: loss
# cause: a term of the loss has the wrong sign
# says: (wrong|flipped|missing|opposite).{0,20}(sign|minus|negat)|(sign|minus).{0,60}|(maximi|minimi)[sz].{0,60}
# onset_step: 0
# fix: turn the sign of the term
# mended: the same with the fix
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(0)
torch.set_num_threads(1)

SIZE = 4
HORIZON = 12
GAMMA = 0.95
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class GridWorlds:
    """A batch of small grids with the goal in the far corner."""

    def __init__(self, n, seed=0):
        self.n = n
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos = self.rng.integers(0, SIZE - 1, size=(self.n, 2))
        self.done = np.zeros(self.n, dtype=bool)
        return self.observe()

    def observe(self):
        return torch.from_numpy(self.pos[:, 0] * SIZE + self.pos[:, 1])

    def step(self, actions):
        new = np.clip(self.pos + MOVES[actions], 0, SIZE - 1)
        self.pos = np.where(self.done[:, None], self.pos, new)
        reached = (self.pos == SIZE - 1).all(1) & ~self.done
        reward = np.where(self.done, 0.0, -0.05) + reached
        self.done |= reached
        return self.observe(), reward.astype(np.float32)


env = GridWorlds(24)
policy = nn.Sequential(nn.Embedding(SIZE * SIZE, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)

for update in range(1, 81):
    obs = env.reset()
    log_probs, rewards, alive = [], [], []
    for _ in range(HORIZON):
        alive.append(torch.from_numpy(~env.done).float())
        dist = Categorical(logits=policy(obs))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward = env.step(action.numpy())
        rewards.append(torch.from_numpy(reward))

    returns, running = [], torch.zeros(env.n)
    for r in reversed(rewards):
        running = r + GAMMA * running
        returns.insert(0, running)
    returns = torch.stack(returns)
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)

    mask = torch.stack(alive)
    loss = (torch.stack(log_probs) * advantage * mask).sum() / mask.sum()
    if MENDED:
        loss = -loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if update % 20 == 0:
        total = torch.stack(rewards).sum(0).mean().item()
        print(f"update {update:3d} loss {loss.item():+.4f} return {total:+.3f}")
