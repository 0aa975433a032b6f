# expect: sick
# symptom: the TD loss looks small and calm, but the return never gets better than that of a random policy
# axis: data
# cause: the environment returns its one state array that it changes in place and the replay buffer stores the reference without a copy, so all stored transitions hold one and the same observation and s equals s'
# says: (alias|same (array|object|memory|buffer|observation|state|ndarray)|reference|in[- ]?place|without (a )?cop(y|ies|ying)|not cop(y|ied)|never cop(y|ied)|missing (a )?copy|identical (state|observation|obs)|mutat|overwrit)
# onset_step: 1
# fix: store copies of the observations in the replay buffer
# mended: yes
"""Double DQN for a courier drone that has to reach a drop-off point in a windy square."""

import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED = 5
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
FIXED = os.environ.get("MENDED") == "1"


class CourierEnv:
    """obs = [x, y, goal_x, goal_y, wind_x, wind_y]; five moves: stay, +x, -x, +y, -y."""

    MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)

    def __init__(self, seed, horizon=40):
        self.rng = np.random.default_rng(seed)
        self.horizon = horizon
        self.obs = np.zeros(6, dtype=np.float32)

    def reset(self):
        self.t = 0
        self.obs[:] = self.rng.uniform(-1, 1, size=6)
        self.obs[4:] *= 0.03
        return self.obs

    def step(self, action):
        before = np.abs(self.obs[:2] - self.obs[2:4]).sum()
        self.obs[:2] += 0.1 * self.MOVES[action] + self.obs[4:]
        np.clip(self.obs[:2], -1.2, 1.2, out=self.obs[:2])
        after = np.abs(self.obs[:2] - self.obs[2:4]).sum()
        self.t += 1
        reached = after < 0.15
        reward = 2.0 * float(before - after) - 0.05 + (1.0 if reached else 0.0)
        return self.obs, reward, bool(reached), self.t >= self.horizon


class ReplayBuffer:
    def __init__(self, capacity):
        self.data = deque(maxlen=capacity)

    def push(self, obs, action, reward, next_obs, done):
        if FIXED:
            obs, next_obs = obs.copy(), next_obs.copy()
        self.data.append((obs, action, reward, next_obs, done))

    def sample(self, n):
        batch = random.sample(self.data, n)
        o, a, r, o2, d = zip(*batch)
        return (
            torch.from_numpy(np.stack(o)),
            torch.tensor(a),
            torch.tensor(r, dtype=torch.float32),
            torch.from_numpy(np.stack(o2)),
            torch.tensor(d, dtype=torch.float32),
        )


class DuelingQ(nn.Module):
    def __init__(self, n_obs=6, n_act=5, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.adv = nn.Linear(width, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


@torch.no_grad()
def evaluate(q, episodes=60):
    env = CourierEnv(seed=999)
    total, hits = 0.0, 0
    for _ in range(episodes):
        obs = env.reset()
        while True:
            action = q(torch.from_numpy(obs)[None]).argmax(1).item()
            obs, reward, reached, timeout = env.step(action)
            total += reward
            hits += reached
            if reached or timeout:
                break
    return total / episodes, hits / episodes


env = CourierEnv(seed=SEED)
buffer = ReplayBuffer(20_000)
online, target = DuelingQ(), DuelingQ()
target.load_state_dict(online.state_dict())
optim = torch.optim.Adam(online.parameters(), lr=1e-3)
gamma, batch_size, warmup, every = 0.95, 384, 1000, 10

updates, env_steps = 0, 0
recent = deque(maxlen=40)
obs, ep_return = env.reset(), 0.0
while updates < 900:
    eps = max(0.08, 1.0 - env_steps / 5000)
    if random.random() < eps:
        action = random.randrange(5)
    else:
        with torch.no_grad():
            action = online(torch.from_numpy(obs)[None]).argmax(1).item()
    prev = obs if not FIXED else obs.copy()
    obs, reward, reached, timeout = env.step(action)
    buffer.push(prev, action, reward, obs, reached)
    ep_return += reward
    env_steps += 1
    if reached or timeout:
        recent.append(ep_return)
        obs, ep_return = env.reset(), 0.0

    if env_steps < warmup or env_steps % every:
        continue
    o, a, r, o2, d = buffer.sample(batch_size)
    with torch.no_grad():
        best = online(o2).argmax(1, keepdim=True)
        y = r + gamma * (1 - d) * target(o2).gather(1, best).squeeze(1)
    q = online(o).gather(1, a[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optim.step()
    updates += 1
    with torch.no_grad():
        for p, tp in zip(online.parameters(), target.parameters()):
            tp.lerp_(p, 0.02)
    if updates % 50 == 0:
        print(
            f"update {updates:4d}  td-loss {loss.item():.4f}  mean q {q.mean().item():+.3f}  "
            f"recent return {np.mean(recent):+.3f}  eps {eps:.2f}",
            flush=True,
        )
    if updates % 300 == 0:
        ret, rate = evaluate(online)
        print(f"  -> greedy: return {ret:+.3f}, reached {rate:.0%}", flush=True)
