# expect: sick
# symptom: the losses look ordinary and nothing explodes, but the average episode length wanders about and ends no better than a random policy
# axis: harness
# cause: observations and actions are flattened environment by environment (transposed) while advantages and returns are flattened time-major, so every sample is paired with the advantage of another one
# says: (flatten|reshap|transpos|order|layout|time-major|env-major|swap|axes|axis).{0,250}(advantage|return|mismatch|mispair|misalign|pair|wrong (sample|transition|step)|other (sample|transition|step)|scrambl|shuffl)|(advantage|return).{0,250}(misalign|mismatch|not (match|align|line up|correspond)|another (sample|transition|step|env)|wrong (sample|transition|step|state|obs|action)|order|flatten|transpos|scrambl)
# onset_step: 1
# fix: flatten advantages and returns in the same environment-major order as the observations
# mended: yes
"""Proximal policy optimisation on a batch of pole-on-cart simulations."""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    n_envs: int = 24
    horizon: int = 64
    iterations: int = 50
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    ent_coef: float = 0.005
    lr: float = 1.5e-3
    seed: int = 5


class PoleCarts:
    """Vectorised cart-pole dynamics with automatic reset."""

    def __init__(self, n, seed, limit=300):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.state = self.fresh(n)
        self.age = np.zeros(n, dtype=int)

    def fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, size=(k, 4))

    def observe(self):
        return torch.tensor(self.state * np.array([1.0, 1.0, 5.0, 1.0]), dtype=torch.float32)

    def step(self, action):
        x, v, th, om = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * om**2 * sin) / 1.1
        alpha = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        acc = tmp - 0.05 * alpha * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * om, om + 0.02 * alpha], 1)
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21) | (self.age >= self.limit)
        lengths = self.age[done].tolist()
        self.state[done] = self.fresh(int(done.sum()))
        self.age[done] = 0
        return np.ones(self.n), done, lengths


class ActorCritic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.v = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.v(obs).squeeze(-1)


def gae(reward, value, done, last_value, cfg):
    adv = torch.zeros_like(reward)
    running = torch.zeros(cfg.n_envs)
    following = last_value
    for t in reversed(range(cfg.horizon)):
        alive = 1.0 - done[t]
        delta = reward[t] + cfg.gamma * following * alive - value[t]
        running = delta + cfg.gamma * cfg.lam * alive * running
        adv[t] = running
        following = value[t]
    return adv, adv + value


def env_major(x):
    return x.transpose(0, 1).reshape(-1, *x.shape[2:])


def main(cfg=Config()):
    torch.manual_seed(cfg.seed)
    envs = PoleCarts(cfg.n_envs, cfg.seed)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, eps=1e-5)
    recent, updates = [], 0
    T, N = cfg.horizon, cfg.n_envs
    for it in range(1, cfg.iterations + 1):
        obs, act = torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.long)
        logp, val, rew, done = (torch.zeros(T, N) for _ in range(4))
        with torch.no_grad():
            for t in range(T):
                obs[t] = envs.observe()
                dist, val[t] = net(obs[t])
                act[t] = dist.sample()
                logp[t] = dist.log_prob(act[t])
                r, d, lengths = envs.step(act[t].numpy())
                rew[t], done[t] = torch.from_numpy(r), torch.from_numpy(d)
                recent = (recent + lengths)[-50:]
            _, last_value = net(envs.observe())
            adv, ret = gae(rew, val, done, last_value, cfg)

        b_obs, b_act, b_logp = env_major(obs), env_major(act), env_major(logp)
        if MENDED:
            b_adv, b_ret = env_major(adv), env_major(ret)
        else:
            b_adv, b_ret = adv.reshape(-1), ret.reshape(-1)
        b_adv = (b_adv - b_adv.mean()) / (b_adv.std() + 1e-8)
        for _ in range(cfg.epochs):
            for idx in torch.randperm(T * N).chunk(cfg.minibatches):
                dist, v = net(b_obs[idx])
                ratio = (dist.log_prob(b_act[idx]) - b_logp[idx]).exp()
                a = b_adv[idx]
                pg = -torch.min(ratio * a, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * a).mean()
                vf = 0.5 * (v - b_ret[idx]).square().mean()
                loss = pg + 0.05 * vf - cfg.ent_coef * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                updates += 1
        if it % 5 == 0:
            mean_len = sum(recent) / max(1, len(recent))
            print(
                f"iter {it:3d}  updates {updates:4d}  loss {loss.item():.3f}  value {vf.item():.2f}  "
                f"episode length {mean_len:.1f}"
            )


if __name__ == "__main__":
    main()
