# expect: healthy
# symptom: the total loss is dominated by the critic, then negative and noisy, changes sign and ends higher than half way; returns jump about; it resembles a stalled policy gradient
# axis: none
# mended: none
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.set_num_threads(1)


@dataclass(frozen=True)
class Hyper:
    envs: int = 24
    horizon: int = 40
    iters: int = 60
    epochs: int = 4
    minibatches: int = 2
    gamma: float = 0.96
    lam: float = 0.9
    clip: float = 0.2
    ent_start: float = 0.02
    ent_end: float = 0.001
    lr: float = 2e-3
    vf: float = 0.5
    max_norm: float = 0.5


class PointMass:
    """Drive a damped point to a goal in the plane; episodes have a fixed length of 40 steps."""

    def __init__(self, n, seed):
        self.n, self.gen = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.p = torch.empty(self.n, 2).uniform_(-2, 2, generator=self.gen)
        self.v = torch.zeros(self.n, 2)
        self.g = torch.empty(self.n, 2).uniform_(-2, 2, generator=self.gen)
        self.k = 0
        return self.obs()

    def obs(self):
        left = torch.full((self.n, 1), 1 - self.k / 40)
        return torch.cat([self.p, self.v, self.g - self.p, left], 1)

    def step(self, a):
        a = a.clamp(-1, 1)
        wind = 0.15 * torch.randn(self.n, 2, generator=self.gen)
        self.v = 0.8 * self.v + 0.25 * a + 0.1 * wind
        self.p = self.p + self.v
        self.k += 1
        dist = (self.g - self.p).norm(dim=1)
        return self.obs(), -dist - 0.02 * a.pow(2).sum(1), self.k == 40


class ActorCritic(nn.Module):
    def __init__(self, obs=7, act=2, h=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, act))
        self.v = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.log_std = nn.Parameter(torch.full((act,), -0.5))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, math.sqrt(2))
                nn.init.zeros_(m.bias)
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)

    def dist(self, o):
        return Normal(self.pi(o), self.log_std.exp().expand(o.shape[0], -1))

    def value(self, o):
        return self.v(o).squeeze(-1)


@torch.no_grad()
def collect(env, net, hp, scale):
    o, store = env.reset(), []
    total = torch.zeros(hp.envs)
    for _ in range(hp.horizon):
        d = net.dist(o)
        a = d.sample()
        logp, v = d.log_prob(a).sum(-1), net.value(o)
        n, r, done = env.step(a)
        store.append((o, a, logp, v, r / scale))
        total += r
        o = n
    obs, act, logp, val, rew = (torch.stack(z) for z in zip(*store))
    adv, run = torch.zeros_like(rew), torch.zeros(hp.envs)
    for t in reversed(range(hp.horizon)):
        nxt = val[t + 1] if t + 1 < hp.horizon else torch.zeros(hp.envs)
        run = rew[t] + hp.gamma * nxt - val[t] + hp.gamma * hp.lam * run
        adv[t] = run
    flat = [z.flatten(0, 1) for z in (obs, act, logp, adv, adv + val)]
    return flat, total.mean().item()


def main():
    hp = Hyper()
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    env, net = PointMass(hp.envs, 5), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=hp.lr, eps=1e-5)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1 - i / hp.iters)
    step = 0
    for it in range(hp.iters):
        (obs, act, logp_old, adv, ret), score = collect(env, net, hp, scale=4.0)
        ent_c = hp.ent_start + (hp.ent_end - hp.ent_start) * it / hp.iters
        skipped = 0
        for _ in range(hp.epochs):
            for idx in np.array_split(rng.permutation(len(obs)), hp.minibatches):
                j = torch.from_numpy(idx)
                d = net.dist(obs[j])
                ratio = (d.log_prob(act[j]).sum(-1) - logp_old[j]).exp()
                a = (adv[j] - adv[j].mean()) / (adv[j].std() + 1e-8)
                pg = -torch.min(ratio * a, ratio.clamp(1 - hp.clip, 1 + hp.clip) * a).mean()
                vloss = (net.value(obs[j]) - ret[j]).pow(2).mean()
                ent = d.entropy().sum(-1).mean()
                loss = pg + hp.vf * vloss - ent_c * ent
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), hp.max_norm)
                opt.step()
                step += 1
                skipped += ((ratio - 1).abs() > hp.clip).float().mean().item()
        sched.step()
        if it % 3 == 0 or it == hp.iters - 1:
            frac = skipped / (hp.epochs * hp.minibatches)
            print(
                f"iter {it:3d} step {step:4d} loss {loss.item():+.4f} pg {pg.item():+.4f} v {vloss.item():.3f} ent {ent.item():+.3f} clipfrac {frac:.2f} return {score:.2f}"
            )


if __name__ == "__main__":
    main()
