# expect: sick
# symptom: the episode length stays as short as that of a random policy while the value loss looks fine or grows; the policy does not learn
# axis: loss
# cause: the GAE recursion ignores the done flags, so it bootstraps from the first state of the next episode across every episode end and the failure never costs anything
# says: (done|terminal|terminat\w*|episode[ -]?(end|bound|break)\w*|end of (an |the )?episode)s?[^.]{0,90}(mask|ignor|not (used|masked|handled|applied|respected|zeroed)|missing|forgot|unused|bootstrap|across|leak|never|neglect|without|dropped|omit)|bootstrap\w*[^.]{0,70}(across|beyond|past|through|over|at|after)[^.]{0,30}(episode|terminal|done|end|terminat|reset)|(gae|advantage|return)s?[^.]{0,70}(across|through|over|beyond)[^.]{0,20}(episode|terminal|reset)|(miss\w*|no|without|lack\w*|forg\w*)[^.]{0,20}(1 ?- ?done|done.?mask|terminal.?mask)
# onset_step: 1
# fix: multiply the bootstrap value and the carried advantage by (1 - done)
# mended: with MENDED=1 the factor `live` of the GAE recursion is 1 - done instead of 1
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

MENDED = os.environ.get("MENDED") == "1"


class VecCartPole:
    """Batched cart-pole with automatic reset, same physics constants as the classic task."""

    def __init__(self, n, seed, limit=300):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, int)
        self.finished = []

    def step(self, action):
        x, v, th, w = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w**2 * s) / 1.1
        alpha = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        acc = tmp - 0.05 * alpha * c / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * alpha], 1)
        self.t += 1
        done = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095) | (self.t >= self.limit)
        reward = np.ones(self.n)
        if done.any():
            self.finished.extend(self.t[done].tolist())
            self.s[done] = self.rng.uniform(-0.05, 0.05, (done.sum(), 4))
            self.t[done] = 0
        return self.s.astype(np.float32), reward.astype(np.float32), done.astype(np.float32)


@dataclass
class PPOConfig:
    envs: int = 16
    horizon: int = 64
    iterations: int = 30
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 1e-3
    ent_coef: float = 0.005
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    seed: int = 1


class ActorCritic(nn.Module):
    def __init__(self, obs=4, actions=2, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, actions)
        )
        self.v = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return Categorical(logits=self.pi(x)), self.v(x).squeeze(-1)


def gae(rewards, values, dones, last_value, gamma, lam):
    live = 1.0 - dones if MENDED else torch.ones_like(dones)
    adv = torch.zeros_like(rewards)
    running, nxt = torch.zeros_like(last_value), last_value
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * nxt * live[t] - values[t]
        running = delta + gamma * lam * live[t] * running
        adv[t] = running
        nxt = values[t]
    return adv, adv + values


class PPO:
    def __init__(self, cfg):
        self.cfg = cfg
        self.env = VecCartPole(cfg.envs, cfg.seed)
        self.net = ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-5)
        self.obs = torch.from_numpy(self.env.s.astype(np.float32))

    @torch.no_grad()
    def collect(self):
        buf = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
        for _ in range(self.cfg.horizon):
            dist, v = self.net(self.obs)
            a = dist.sample()
            nobs, r, d = self.env.step(a.numpy())
            for k, item in zip(buf, (self.obs, a, dist.log_prob(a), v, torch.from_numpy(r), torch.from_numpy(d))):
                buf[k].append(item)
            self.obs = torch.from_numpy(nobs)
        buf = {k: torch.stack(v) for k, v in buf.items()}
        last = self.net(self.obs)[1]
        buf["adv"], buf["ret"] = gae(buf["rew"], buf["val"], buf["done"], last, self.cfg.gamma, self.cfg.lam)
        return {k: v.flatten(0, 1) for k, v in buf.items()}

    def update(self, b):
        cfg, n = self.cfg, len(b["adv"])
        for _ in range(cfg.epochs):
            for idx in torch.randperm(n).chunk(cfg.minibatches):
                dist, v = self.net(b["obs"][idx])
                ratio = (dist.log_prob(b["act"][idx]) - b["logp"][idx]).exp()
                adv = b["adv"][idx]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg = -torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv).mean()
                vf = (v - b["ret"][idx]).pow(2).mean()
                loss = pg + cfg.vf_coef * vf - cfg.ent_coef * dist.entropy().mean()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), cfg.max_grad_norm)
                self.opt.step()
        return pg.item(), vf.item(), dist.entropy().mean().item()

    def learn(self):
        for it in range(1, self.cfg.iterations + 1):
            batch = self.collect()
            pg, vf, ent = self.update(batch)
            recent = self.env.finished[-30:]
            print(
                f"iter {it:2d} episode length {np.mean(recent):6.1f} pg {pg:+.4f} value loss {vf:8.3f} entropy {ent:.3f}"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    PPO(PPOConfig()).learn()
