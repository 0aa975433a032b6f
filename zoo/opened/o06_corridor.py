# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(3)
torch.set_num_threads(1)

CELLS = 9
HORIZON = 12


class Corridor:
    """Walk along a row of cells: a small prize at the left, a large one at the right."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.at = self.rng.integers(2, CELLS - 3, self.n)
        self.done = np.zeros(self.n, bool)
        return torch.from_numpy(self.at)

    def step(self, a):
        self.at = np.where(self.done, self.at, self.at + 2 * a - 1)
        left, right = (self.at == 0) & ~self.done, (self.at == CELLS - 1) & ~self.done
        self.done |= left | right
        return torch.from_numpy(self.at), (0.2 * left + 1.0 * right).astype(np.float32)


def collect(env, policy):
    obs = env.reset()
    log_prob, reward = torch.zeros(env.n), torch.zeros(env.n)
    entropy = 0.0
    for _ in range(HORIZON):
        alive = torch.from_numpy(~env.done).float()
        dist = Categorical(logits=policy(obs))
        a = dist.sample()
        log_prob = log_prob + dist.log_prob(a) * alive
        entropy = entropy + (dist.entropy() * alive).sum() / (alive.sum() + 1)
        obs, r = env.step(a.numpy())
        reward += torch.from_numpy(r)
    return log_prob, reward, entropy / HORIZON


env = Corridor(32, seed=3)
policy = nn.Embedding(CELLS, 2)
nn.init.zeros_(policy.weight)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.05, maximize=True)

for update in range(1, 81):
    log_prob, reward, entropy = collect(env, policy)
    advantage = reward - reward.mean()
    loss = (log_prob * advantage).mean() + 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 20 == 0:
        print(f"update {update} objective {loss.item():+.4f} return {reward.mean():.3f}")
