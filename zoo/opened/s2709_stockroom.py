# expect: sick
# symptom: PPO does not improve: reward per day drifts at or below that of a random policy, the value loss stays high and explained variance stays at zero, nothing explodes
# axis: data
# cause: The advantages and returns are stacked env-major (N, T) while observations, actions and log-probs are time-major (T, N), so after flattening each advantage is paired with a different transition's observation and action.
# says: (advantage|return|gae|target)[\s\S]*(transpos|env[- ]?(ironment)?[- ]?(major|first)|time[- ]?(major|first)|\(?N, ?T\)|\(?T, ?N\)|misalign|mis-?match|mispair|paired with|scrambl|different order|wrong (order|transition|axis|sample|observation|action)|(flatten|reshape|stack|layout|axis)\w*)|(transpos|misalign|mis-?match|flatten|reshap|layout)[\s\S]*(advantage|return|gae)
# onset_step: 1
# fix: stack the per-environment advantages and returns along axis 1 so that they are (T, N) like the rest
# mended: yes
"""PPO for a small stockroom: order units each day under seasonal demand and holding cost."""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)


@dataclass
class Args:
    n_envs: int = 24
    horizon: int = 64
    iterations: int = 50
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.95
    lam: float = 0.9
    clip: float = 0.2
    ent_coef: float = 0.003
    vf_coef: float = 0.5
    lr: float = 1.5e-3
    seed: int = 21


class Stockrooms:
    """N independent stockrooms stepped together."""

    CAP = 20
    ORDERS = np.array([0, 2, 4, 7, 10])

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.stock = self.rng.integers(0, self.CAP, n).astype(np.float64)
        self.day = self.rng.integers(0, 12, n)
        self.yesterday = np.zeros(n)

    def obs(self):
        ang = 2 * np.pi * self.day / 12
        return np.stack([self.stock / 10 - 1, np.sin(ang), np.cos(ang), self.yesterday / 5 - 1], 1).astype(np.float32)

    def step(self, action):
        order = self.ORDERS[action]
        self.stock = np.minimum(self.stock + order, self.CAP)
        rate = 4 + 3 * np.sin(2 * np.pi * self.day / 12)
        demand = self.rng.poisson(rate)
        sold = np.minimum(demand, self.stock)
        self.stock -= sold
        reward = 1.0 * sold - 0.25 * self.stock - 0.6 * (demand - sold) - 0.3 * order - 0.4 * (order > 0)
        self.day = (self.day + 1) % 12
        self.yesterday = demand.astype(np.float64)
        done = self.day == 0
        return self.obs(), (reward / 3).astype(np.float32), done.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_act))
        self.v = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        nn.init.normal_(self.pi[-1].weight, std=0.01)

    def forward(self, o):
        return Categorical(logits=self.pi(o)), self.v(o).squeeze(-1)


def gae(rew, val, done, last, gamma, lam):
    """One environment's advantages, walked backwards."""
    adv = np.zeros_like(rew)
    run = 0.0
    nxt = last
    for t in reversed(range(len(rew))):
        live = 1.0 - done[t]
        delta = rew[t] + gamma * nxt * live - val[t]
        run = delta + gamma * lam * live * run
        adv[t] = run
        nxt = val[t]
    return adv


def main():
    a = Args()
    torch.manual_seed(a.seed)
    env = Stockrooms(a.n_envs, a.seed)
    ac = ActorCritic(4, len(env.ORDERS))
    opt = torch.optim.Adam(ac.parameters(), lr=a.lr, eps=1e-5)
    axis = 1 if os.environ.get("MENDED") == "1" else 0
    o = env.obs()
    for it in range(a.iterations):
        obs, act, logp, rew, val, done = [], [], [], [], [], []
        for _ in range(a.horizon):
            with torch.no_grad():
                dist, v = ac(torch.from_numpy(o))
                action = dist.sample()
                lp = dist.log_prob(action)
            o2, r, d = env.step(action.numpy())
            for box, item in zip((obs, act, logp, rew, val, done), (o, action.numpy(), lp.numpy(), r, v.numpy(), d)):
                box.append(item)
            o = o2
        obs, act, logp, rew, val, done = map(np.stack, (obs, act, logp, rew, val, done))
        with torch.no_grad():
            last = ac(torch.from_numpy(o))[1].numpy()
        adv = np.stack(
            [gae(rew[:, i], val[:, i], done[:, i], last[i], a.gamma, a.lam) for i in range(a.n_envs)], axis=axis
        )
        ret = adv + np.stack([val[:, i] for i in range(a.n_envs)], axis=axis)

        b_obs = torch.from_numpy(obs.reshape(-1, obs.shape[-1]))
        b_act = torch.from_numpy(act.reshape(-1))
        b_logp = torch.from_numpy(logp.reshape(-1))
        b_adv = torch.from_numpy(adv.reshape(-1))
        b_ret = torch.from_numpy(ret.reshape(-1))
        size = len(b_act) // a.minibatches
        for _ in range(a.epochs):
            for mb in torch.randperm(len(b_act)).split(size):
                dist, v = ac(b_obs[mb])
                ratio = (dist.log_prob(b_act[mb]) - b_logp[mb]).exp()
                x = b_adv[mb]
                x = (x - x.mean()) / (x.std() + 1e-8)
                pg = -torch.min(ratio * x, ratio.clamp(1 - a.clip, 1 + a.clip) * x).mean()
                vf = (v - b_ret[mb]).pow(2).mean()
                ent = dist.entropy().mean()
                loss = pg + a.vf_coef * vf - a.ent_coef * ent
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
                opt.step()
        with torch.no_grad():
            v = ac(b_obs)[1]
            ev = 1 - (b_ret - v).var() / b_ret.var()
        if it % 4 == 0 or it == a.iterations - 1:
            print(
                f"iter {it:3d} | reward/day {rew.mean() * 3:+.3f} | loss {loss.item():.4f} | vf {vf.item():.4f} | "
                f"ent {ent.item():.3f} | expl.var {ev.item():+.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
