# expect: healthy
# symptom: an environment with a state of its own, which looks like a state that is shared
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(10)
torch.manual_seed(10)


class SpringChain:
    """Three masses joined by springs; the arrays are advanced in place."""

    def __init__(self):
        self.q = np.zeros(6, dtype=np.float32)

    def reset(self):
        self.q[:] = rng.normal(0, 0.6, 6)
        return self.q

    def step(self, pull):
        x, v = self.q[:3], self.q[3:]
        force = -x.copy()
        force[:-1] += x[1:] - x[:-1]
        force[1:] += x[:-1] - x[1:]
        force[0] += pull
        v += 0.1 * (force - 0.2 * v)
        x += 0.1 * v
        return self.q


class Ring:
    def __init__(self, size, dim):
        self.before = np.empty((size, dim), dtype=np.float32)
        self.after = np.empty((size, dim), dtype=np.float32)
        self.pull = np.empty((size, 1), dtype=np.float32)
        self.size, self.head, self.count = size, 0, 0

    def open(self, obs, pull):
        self.before[self.head] = obs
        self.pull[self.head] = pull

    def close(self, obs):
        self.after[self.head] = obs
        self.head = (self.head + 1) % self.size
        self.count = min(self.count + 1, self.size)

    def sample(self, k):
        i = rng.integers(0, self.count, k)
        return [torch.from_numpy(a[i]) for a in (self.before, self.pull, self.after)]


env, ring = SpringChain(), Ring(600, 6)
model = nn.Sequential(nn.Linear(7, 48), nn.Tanh(), nn.Linear(48, 6))
opt = torch.optim.Adam(model.parameters(), lr=8e-3)

obs = env.reset()
for t in range(1, 801):
    pull = float(rng.uniform(-1, 1))
    ring.open(obs, pull)
    obs = env.step(pull)
    ring.close(obs)
    if t % 40 == 0:
        obs = env.reset()
    if t < 200 or t % 5:
        continue
    s, u, s2 = ring.sample(64)
    loss = (model(torch.cat([s, u], dim=1)) - (s2 - s) / 0.1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if t % 100 == 0:
        print(f"t {t} loss {loss.item():.4f}")
