# expect: sick
# symptom: PPO runs without any error and the value loss is flat and high; explained variance stays near zero and the return improves little
# axis: loss
# cause: the critic gives values of shape (N, 1) and the returns have shape (N,); the difference broadcasts to N x N, so the critic only learns the mean return
# says: broadcast|shape|squeeze|\(N, ?1\)|N ?[x×] ?N|unsqueeze|dimension|value.{0,60}(constant|mean return|only the mean|does not depend|ignores)
# onset_step: 0
# fix: squeeze the critic's output before the value loss
# mended: the value head's last dimension is squeezed in the loss
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Normal

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class PPOConfig:
    envs: int = 24
    horizon: int = 50
    iterations: int = 32
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.0
    lr: float = 2e-3
    max_grad_norm: float = 0.5
    seed: int = 4


class PointMass:
    """Vectorised planar point mass that has to reach the origin; episodes end after a time limit."""

    def __init__(self, n, limit, seed):
        self.n, self.limit = n, limit
        self.g = torch.Generator().manual_seed(seed)
        self.state, self.t = torch.zeros(n, 4), torch.zeros(n, dtype=torch.long)
        self._reset(torch.ones(n, dtype=torch.bool))
        self.t = torch.randint(0, limit, (n,), generator=self.g)

    def obs(self):
        return torch.cat([self.state, self.t[:, None] / self.limit], 1)

    def _reset(self, which):
        k = int(which.sum())
        pos = (torch.rand(k, 2, generator=self.g) * 2 - 1) * 2.0 * torch.rand(k, 1, generator=self.g).sqrt()
        self.state[which] = torch.cat([pos, 0.2 * torch.randn(k, 2, generator=self.g)], 1)
        self.t[which] = 0

    def step(self, action):
        a = action.clamp(-1, 1)
        pos, vel = self.state[:, :2], self.state[:, 2:]
        vel = 0.95 * vel + 0.12 * a
        pos = (pos + 0.25 * vel).clamp(-2.5, 2.5)
        self.state = torch.cat([pos, vel], 1)
        self.t += 1
        reward = -0.1 * pos.norm(dim=1) - 0.005 * a.pow(2).sum(1)
        done = self.t >= self.limit
        self._reset(done)
        return self.obs(), reward, done


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, o))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = mlp(5, 2), mlp(5, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def dist(self, obs):
        return Normal(self.pi(obs), self.log_std.exp())


class PPO:
    def __init__(self, cfg):
        self.cfg, self.env = cfg, PointMass(cfg.envs, 60, cfg.seed)
        self.net = ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-5)
        self.obs = self.env.obs()

    @torch.no_grad()
    def rollout(self):
        c, buf = self.cfg, {k: [] for k in ("obs", "act", "logp", "rew", "done", "val")}
        for _ in range(c.horizon):
            d = self.net.dist(self.obs)
            act = d.sample()
            nxt, rew, done = self.env.step(act)
            for k, v in zip(
                buf, (self.obs, act, d.log_prob(act).sum(-1), rew, done.float(), self.net.v(self.obs)[:, 0])
            ):
                buf[k].append(v)
            self.obs = nxt
        b = {k: torch.stack(v) for k, v in buf.items()}
        last, adv, out = self.net.v(self.obs)[:, 0], torch.zeros(c.envs), []
        for t in reversed(range(c.horizon)):
            nv = last if t == c.horizon - 1 else b["val"][t + 1]
            live = 1 - b["done"][t]
            adv = b["rew"][t] + c.gamma * nv * live - b["val"][t] + c.gamma * c.lam * live * adv
            out.append(adv)
        b["adv"] = torch.stack(out[::-1])
        b["ret"] = b["adv"] + b["val"]
        return b["rew"].mean().item(), {k: v.flatten(0, 1) for k, v in b.items()}

    def update(self, b):
        c, n = self.cfg, len(b["obs"])
        for _ in range(c.epochs):
            for idx in torch.randperm(n).chunk(c.minibatches):
                d = self.net.dist(b["obs"][idx])
                ratio = (d.log_prob(b["act"][idx]).sum(-1) - b["logp"][idx]).exp()
                adv = b["adv"][idx]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg = -torch.min(ratio * adv, ratio.clamp(1 - c.clip, 1 + c.clip) * adv).mean()
                value = self.net.v(b["obs"][idx])
                if MENDED:
                    value = value.squeeze(-1)
                vf = (value - b["ret"][idx]).pow(2).mean()
                loss = pg + c.vf_coef * vf - c.ent_coef * d.entropy().sum(-1).mean()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), c.max_grad_norm)
                self.opt.step()
        return loss.item(), vf.item()

    def learn(self):
        for it in range(self.cfg.iterations):
            mean_rew, b = self.rollout()
            ev = 1 - (b["ret"] - b["val"]).var() / b["ret"].var()
            loss, vf = self.update(b)
            print(
                f"iter {it} reward {mean_rew:.4f} loss {loss:.3f} value_loss {vf:.3f} explained_var {ev:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    torch.manual_seed(PPOConfig.seed)
    PPO(PPOConfig()).learn()
