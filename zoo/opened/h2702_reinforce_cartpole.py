# expect: healthy
# symptom: resembles unstable RL training: policy loss hovers around zero with large noise, value loss grows as episodes get longer
# axis: data
"""Advantage actor-critic on a vectorised cart-pole (own simulator)."""

from __future__ import annotations

import collections
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)


class CartPoles:
    """Batch of independent cart-poles with automatic reset."""

    gravity, m_cart, m_pole, half_len, force, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, n, limit=300, seed=0):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.state = self._fresh(n)
        self.age = np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def step(self, action):
        x, v, th, w = self.state.T
        f = np.where(action == 1, self.force, -self.force)
        total = self.m_cart + self.m_pole
        c, s = np.cos(th), np.sin(th)
        tmp = (f + self.m_pole * self.half_len * w**2 * s) / total
        acc = (self.gravity * s - c * tmp) / (self.half_len * (4 / 3 - self.m_pole * c**2 / total))
        xacc = tmp - self.m_pole * self.half_len * acc * c / total
        self.state = np.stack([x + self.tau * v, v + self.tau * xacc, th + self.tau * w, w + self.tau * acc], axis=1)
        self.age += 1
        fell = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 12 * math.pi / 180)
        timeout = (self.age >= self.limit) & ~fell
        last = self.state.copy()
        over = fell | timeout
        lengths = self.age[over].tolist()
        if over.any():
            self.state[over] = self._fresh(over.sum())
            self.age[over] = 0
        return last, fell, timeout, lengths


class ActorCritic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.v = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        for m in (*self.pi, *self.v):
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, math.sqrt(2))
                nn.init.zeros_(m.bias)
        with torch.no_grad():
            self.pi[-1].weight.mul_(0.01)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


def obs_of(state):
    return torch.as_tensor(state * np.array([1.0, 0.5, 5.0, 0.5]), dtype=torch.float32)


def rollout(env, ac, horizon):
    buf = collections.defaultdict(list)
    finished = []
    for _ in range(horizon):
        obs = obs_of(env.state)
        with torch.no_grad():
            act = Categorical(logits=ac.pi(obs)).sample()
        last, fell, timeout, lengths = env.step(act.numpy())
        finished += lengths
        with torch.no_grad():
            nxt = ac.value(obs_of(last))
        buf["obs"].append(obs)
        buf["act"].append(act)
        buf["next_v"].append(nxt * torch.as_tensor(~fell).float())
        buf["cut"].append(torch.as_tensor(fell | timeout).float())
    return {k: torch.stack(v) for k, v in buf.items()}, finished


def advantages(b, values, gamma, lam):
    adv = torch.zeros_like(values)
    run = torch.zeros(values.shape[1])
    for t in reversed(range(len(values))):
        delta = 1.0 + gamma * b["next_v"][t] - values[t]
        run = delta + gamma * lam * (1 - b["cut"][t]) * run
        adv[t] = run
    return adv


def train(updates=260, horizon=32, gamma=0.99, lam=0.95, ent=0.01):
    torch.manual_seed(1)
    env, ac = CartPoles(16, seed=1), ActorCritic()
    opt = torch.optim.RMSprop(ac.parameters(), lr=2e-3, alpha=0.99, eps=1e-5)
    recent = collections.deque(maxlen=40)
    for u in range(1, updates + 1):
        b, finished = rollout(env, ac, horizon)
        recent.extend(finished)
        values = ac.value(b["obs"])
        adv = advantages(b, values.detach(), gamma, lam)
        target = adv + values.detach()
        dist = Categorical(logits=ac.pi(b["obs"]))
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -(dist.log_prob(b["act"]) * norm).mean()
        vf = F.mse_loss(values, target)
        loss = pg + 0.5 * vf - ent * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
        opt.step()
        for g in opt.param_groups:
            g["lr"] = 2e-3 * (1 - u / updates)
        if u % 13 == 0:
            mean_len = np.mean(recent) if recent else float("nan")
            print(
                f"update {u:4d} loss {loss.item():8.3f} policy {pg.item():+.4f} value {vf.item():8.3f} "
                f"entropy {dist.entropy().mean().item():.3f} episode length {mean_len:6.1f}"
            )


if __name__ == "__main__":
    train()
