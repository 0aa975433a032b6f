# expect: healthy
# symptom: the loss is practically zero from the first step (1e-7 to 1e-3) while hardly any episode pays for 350 steps; the loss is small, bumpy and jumps at target copies, Q values climb all the time, rewards come late
# axis: none
# mended: none
import os
from collections import deque
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class DQNConfig:
    grid: int = 5
    envs: int = 16
    limit: int = 60
    steps: int = 900
    warm: int = 40
    batch: int = 128
    gamma: float = 0.95
    lr: float = 2e-3
    copy_every: int = 30
    eps_start: float = 1.0
    eps_end: float = 0.1
    eps_steps: int = 500
    seed: int = 9


class KeyDoor:
    """Grid world: fetch the key in one corner, then walk to the door. A single reward of 1 at the door."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, cfg, seed):
        self.c, self.rng = cfg, np.random.default_rng(seed)
        self.pos = np.zeros((cfg.envs, 2), int)
        self.has, self.t = np.zeros(cfg.envs, bool), np.zeros(cfg.envs, int)
        self.reset(np.ones(cfg.envs, bool))

    def reset(self, m):
        self.pos[m] = self.rng.integers(0, self.c.grid, (m.sum(), 2))
        self.has[m], self.t[m] = False, 0

    def obs(self):
        n, g = self.c.envs, self.c.grid
        o = np.zeros((n, 2 * g + 1), np.float32)
        o[np.arange(n), self.pos[:, 0]] = 1
        o[np.arange(n), g + self.pos[:, 1]] = 1
        o[:, -1] = self.has
        return o

    def step(self, a):
        self.pos = np.clip(self.pos + self.MOVES[a], 0, self.c.grid - 1)
        self.t += 1
        self.has |= (self.pos == 0).all(1)
        goal = self.has & (self.pos == self.c.grid - 1).all(1)
        nxt, cut = self.obs(), self.t >= self.c.limit
        self.reset(goal | cut)
        return nxt, goal.astype(np.float32), goal, self.obs()


class QNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * cfg.grid + 1, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.value, self.adv = nn.Linear(96, 1), nn.Linear(96, 4)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.adv.weight)
        nn.init.zeros_(self.value.bias)
        nn.init.zeros_(self.adv.bias)

    def forward(self, x):
        h = self.net(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Replay:
    def __init__(self, size, rng):
        self.data, self.rng = deque(maxlen=size), rng

    def add(self, *arrays):
        self.data.extend(zip(*arrays))

    def sample(self, n):
        idx = self.rng.integers(0, len(self.data), n)
        return [torch.as_tensor(np.stack(c)) for c in zip(*[self.data[i] for i in idx])]


class Agent:
    def __init__(self, cfg):
        self.c, self.rng = cfg, np.random.default_rng(cfg.seed)
        self.env, self.buffer = KeyDoor(cfg, cfg.seed + 1), Replay(20000, self.rng)
        self.q = QNet(cfg)
        self.target = deepcopy(self.q).requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=cfg.lr)

    def act(self, obs, eps):
        with torch.no_grad():
            q = self.q(torch.from_numpy(obs))
        a = (q + 1e-6 * torch.rand_like(q)).argmax(1).numpy()
        rand = self.rng.random(len(a)) < eps
        return np.where(rand, self.rng.integers(0, 4, len(a)), a)

    def learn(self):
        s, a, r, s2, done = self.buffer.sample(self.c.batch)
        q = self.q(s).gather(1, a[:, None])[:, 0]
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            goal = r + self.c.gamma * self.target(s2).gather(1, best)[:, 0] * (~done).float()
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), q.mean().item()

    def run(self):
        c, obs, paid, step = self.c, self.env.obs(), 0.0, 0
        for it in range(c.steps + c.warm):
            frac = min(1.0, it / c.eps_steps)
            for _ in range(3):
                a = self.act(obs, c.eps_start + frac * (c.eps_end - c.eps_start))
                nxt, r, done, start = self.env.step(a)
                self.buffer.add(obs, a, r, nxt, done)
                obs, paid = start, paid + r.sum()
            if it < c.warm:
                continue
            loss, q = self.learn()
            if step % c.copy_every == 0:
                self.target.load_state_dict(self.q.state_dict())
            if step % 20 == 0:
                print(f"step {step} loss {loss:.7f} q {q:.4f} rewards {paid:.0f}", flush=True)
                paid = 0.0
            step += 1


if __name__ == "__main__":
    torch.manual_seed(DQNConfig.seed)
    Agent(DQNConfig()).run()
