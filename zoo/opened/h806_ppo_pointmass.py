# expect: healthy
# symptom: the policy loss stays around zero and the total loss does not fall: looks like a model that does not learn
# axis: loss
# cause: healthy: a PPO surrogate with normalised advantages is about zero by construction and the value loss grows with the returns; the return rises as it should
# says: none
# onset_step: none
# fix: none
# mended: none
import argparse

import torch
import torch.nn as nn
from torch.distributions import Normal

torch.set_num_threads(1)


class PointMass:
    """Vectorised: push a mass in the plane to a goal; the reward is larger near the goal."""

    def __init__(self, n, horizon):
        self.n, self.horizon = n, horizon
        self.reset()

    def reset(self):
        self.p = torch.rand(self.n, 2) * 4 - 2
        self.v = torch.zeros(self.n, 2)
        self.goal = torch.rand(self.n, 2) * 2 - 1
        self.t = 0
        return self.obs()

    def obs(self):
        return torch.cat([self.p, self.v, self.goal - self.p], 1)

    def step(self, a):
        self.v = 0.9 * self.v + 0.15 * a.clamp(-1, 1)
        self.p = self.p + 0.3 * self.v
        self.t += 1
        dist = (self.goal - self.p).norm(dim=1)
        return self.obs(), torch.exp(-2 * dist) - 0.01 * a.pow(2).sum(1), self.t >= self.horizon


class ActorCritic(nn.Module):
    def __init__(self, obs=6, act=2, h=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, act))
        self.vf = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.log_std = nn.Parameter(torch.zeros(act) - 0.3)

    def dist(self, s):
        return Normal(self.pi(s), self.log_std.exp())

    def value(self, s):
        return self.vf(s).squeeze(-1)


@torch.no_grad()
def collect(env, model, gamma=0.95, lam=0.95):
    s, data = env.reset(), []
    over = False
    while not over:
        d = model.dist(s)
        a = d.sample()
        s2, r, over = env.step(a)
        data.append((s, a, d.log_prob(a).sum(-1), r, model.value(s)))
        s = s2
    last, adv, out = model.value(s), torch.zeros(env.n), []
    nxt = last
    for si, ai, lp, r, v in reversed(data):
        adv = r + gamma * nxt - v + gamma * lam * adv
        nxt = v
        out.append((si, ai, lp, adv, adv + v))
    ret = torch.stack([d[3] for d in data]).sum(0).mean().item()
    return [torch.cat(x) for x in zip(*out)], ret


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=30)
    ap.add_argument("--envs", type=int, default=48)
    ap.add_argument("--horizon", type=int, default=32)
    ap.add_argument("--clip", type=float, default=0.2)
    args = ap.parse_args()
    torch.manual_seed(0)

    env, model = PointMass(args.envs, args.horizon), ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-5)
    for it in range(args.iters):
        (s, a, old_lp, adv, ret), score = collect(env, model)
        pl = vl = ent = 0.0
        n_updates = 0
        for _ in range(4):
            for idx in torch.randperm(len(s)).split(256):
                d = model.dist(s[idx])
                ratio = (d.log_prob(a[idx]).sum(-1) - old_lp[idx]).exp()
                A = adv[idx]
                A = (A - A.mean()) / (A.std() + 1e-8)
                policy_loss = -torch.min(ratio * A, ratio.clamp(1 - args.clip, 1 + args.clip) * A).mean()
                value_loss = (model.value(s[idx]) - ret[idx]).pow(2).mean()
                entropy = d.entropy().sum(-1).mean()
                loss = policy_loss + 0.5 * value_loss - 0.003 * entropy
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                opt.step()
                pl, vl, ent = pl + policy_loss.item(), vl + value_loss.item(), ent + entropy.item()
                n_updates += 1
        print(
            f"iter {it:2d} return {score:7.3f} policy loss {pl / n_updates:+.4f} "
            f"value loss {vl / n_updates:.4f} entropy {ent / n_updates:.3f}"
        )


if __name__ == "__main__":
    main()
