# expect: sick
# symptom: alpha and the critic loss grow exponentially, the return improves a little and then falls to that of a random policy
# axis: loss
# cause: The target entropy of SAC has the wrong sign (+dim instead of -dim), which lies above the maximum entropy 2 log 2 of the squashed policy, so the temperature alpha rises without bound.
# says: (target|desired|goal).{0,30}entropy.*(sign|positive|negative|\+|minus|-\s?(dim|act|2|n|\d)|unreach|unattain|impossible|above|exceed|too (high|large|big)|maximum|never (be )?(reach|attain|met))|(sign|positive|unreach|unattain|too (high|large)|wrong|exceed|above).*target.{0,12}entropy
# onset_step: 1
# fix: target_entropy = -act_dim
# mended: yes
"""Soft actor-critic on a vectorised hover task: bring a drone (2-D point mass with drag
and wind) to a beacon and hold it there."""

import copy
import math
import os
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class HoverEnv:
    obs_dim, act_dim, horizon = 6, 2, 40

    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.pos, self.vel = np.zeros((n, 2)), np.zeros((n, 2))
        self.goal, self.t = np.zeros((n, 2)), np.zeros(n, dtype=int)
        self._reset(np.ones(n, dtype=bool))
        self.t = self.rng.integers(0, self.horizon, n)

    def _reset(self, mask):
        k = int(mask.sum())
        self.pos[mask] = self.rng.uniform(-1, 1, (k, 2))
        self.goal[mask] = self.rng.uniform(-1, 1, (k, 2))
        self.vel[mask] = 0
        self.t[mask] = 0

    def obs(self):
        return np.concatenate([self.pos, self.vel, self.goal - self.pos], 1).astype(np.float32)

    def step(self, a):
        wind = 0.02 * self.rng.normal(size=(self.n, 2))
        self.vel = 0.8 * self.vel + 0.12 * a + wind
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        dist = np.linalg.norm(self.goal - self.pos, axis=1)
        reward = np.where(dist < 0.2, 1.0, 0.0) - dist - 0.03 * (a**2).sum(1)
        self.t += 1
        nxt, over = self.obs(), self.t >= self.horizon
        self._reset(over)
        return nxt, reward.astype(np.float32), over


def mlp(i, o, h=96):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.body = mlp(obs_dim, 2 * act_dim)

    def forward(self, obs, greedy=False):
        mu, log_std = self.body(obs).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        u = mu if greedy else mu + log_std.exp() * torch.randn_like(mu)
        logp = -0.5 * ((u - mu) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        logp = logp - 2 * (math.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), logp.sum(-1)


class TwinQ(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1, self.q2 = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class Replay:
    def __init__(self, size, seed):
        self.buf, self.rng = deque(maxlen=size), np.random.default_rng(seed)

    def sample(self, n):
        rows = [self.buf[i] for i in self.rng.integers(0, len(self.buf), n)]
        return [torch.from_numpy(np.stack(c)) for c in zip(*rows)]


def train(seed=4, updates=900, gamma=0.95, tau=0.01, lr=2e-3):
    torch.manual_seed(seed)
    env = HoverEnv(32, seed)
    actor, critic = Actor(env.obs_dim, env.act_dim), TwinQ(env.obs_dim, env.act_dim)
    target = copy.deepcopy(critic).requires_grad_(False)
    log_alpha = torch.tensor(math.log(0.05), requires_grad=True)
    target_entropy = float(-env.act_dim if os.environ.get("MENDED") == "1" else env.act_dim)
    opt_a = torch.optim.Adam(actor.parameters(), lr=lr)
    opt_c = torch.optim.Adam(critic.parameters(), lr=lr)
    opt_t = torch.optim.Adam([log_alpha], lr=5e-3)
    replay = Replay(20000, seed)
    score, steps_in = deque(maxlen=20), 0
    obs = env.obs()
    for update in range(-20, updates + 1):
        with torch.no_grad():
            act = actor(torch.from_numpy(obs))[0].numpy()
        nxt, rew, _ = env.step(act)
        for row in zip(obs, act, rew, nxt):
            replay.buf.append(row)
        obs = env.obs()
        score.append(rew.mean())
        if update < 1:
            continue
        s, a, r, s2 = replay.sample(192)
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            a2, lp2 = actor(s2)
            y = r + gamma * (torch.min(*target(s2, a2)) - alpha * lp2)
        q1, q2 = critic(s, a)
        critic_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        opt_c.zero_grad()
        critic_loss.backward()
        opt_c.step()

        new_a, lp = actor(s)
        actor_loss = (alpha * lp - torch.min(*critic(s, new_a))).mean()
        opt_a.zero_grad()
        actor_loss.backward()
        opt_a.step()

        alpha_loss = -(log_alpha.exp() * (lp.detach() + target_entropy)).mean()
        opt_t.zero_grad()
        alpha_loss.backward()
        opt_t.step()
        with torch.no_grad():
            for p, q in zip(target.parameters(), critic.parameters()):
                p.lerp_(q, tau)
        if update % 50 == 0:
            print(
                f"[{update:4d}] reward/step {np.mean(score):+.3f}  critic {critic_loss.item():.4f}  "
                f"actor {actor_loss.item():+.3f}  alpha {alpha.item():.4f}",
                flush=True,
            )
    test = HoverEnv(200, 99)
    total = 0.0
    for _ in range(40):
        with torch.no_grad():
            act = actor(torch.from_numpy(test.obs()), greedy=True)[0].numpy()
        total += test.step(act)[1].mean()
    print(f"greedy evaluation, reward per step: {total / 40:+.3f}")


if __name__ == "__main__":
    train()
