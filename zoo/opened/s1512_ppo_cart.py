# expect: sick
# symptom: PPO learns well for a while, then policy loss, value loss and all weights are nan from one update to the next
# axis: loss
# cause: the advantages are normalised per minibatch and the last minibatch of a rollout can hold a single sample: the standard deviation of one sample is nan, (a - mean) / (nan + eps) = nan
# says: \b(one|single|1|lone)[- ](sample|element|transition|item|row|entry|value)|(size|length|len)\W{0,3}(of |is )?\W{0,3}(1|one)\b|std.{0,80}(single|\bone\b|\b1 (element|sample)|n ?={1,2} ?1\b)|degrees of freedom|(last|leftover|remainder|final|incomplete).{0,30}batch.{0,80}(\b1\b|\bone\b|single|small|std)
# onset_step: 229
# fix: normalise over the whole rollout, or skip normalisation (or drop the minibatch) when it has one sample
# mended: leaves out a minibatch of one sample
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class CartEnv:
    """Pole on a cart, continuous force; reward 1 a step, at most 150 steps."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 * float(np.clip(action, -1, 1))
        sin, cos = math.sin(th), math.cos(th)
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc_th = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        acc_x = tmp - 0.05 * acc_th * cos / 1.1
        self.s = np.array([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th])
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return self.s.astype(np.float32), 1.0, done, self.t >= 150


class ActorCritic(nn.Module):
    def __init__(self, d_obs, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(d_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.vf = nn.Sequential(
            nn.Linear(d_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def forward(self, obs):
        return self.pi(obs).squeeze(-1), self.vf(obs).squeeze(-1)

    def log_prob(self, mean, act):
        z = (act - mean) / self.log_std.exp()
        return -0.5 * z * z - self.log_std - 0.5 * math.log(2 * math.pi)


@torch.no_grad()
def collect(env, net, min_steps, gamma=0.99, lam=0.95):
    """Whole episodes until there are at least min_steps transitions."""
    obs_b, act_b, logp_b, adv_b, ret_b, lengths = [], [], [], [], [], []
    while len(obs_b) < min_steps:
        obs, rew, val = env.reset(), [], []
        done = cut = False
        while not (done or cut):
            o = torch.from_numpy(obs)
            mean, v = net(o)
            a = mean + net.log_std.exp()[0] * torch.randn(())
            logp_b.append(net.log_prob(mean, a)[0])
            obs_b.append(o), act_b.append(a), val.append(v.item())
            obs, r, done, cut = env.step(a.item())
            rew.append(r)
        nxt = 0.0 if done else net(torch.from_numpy(obs))[1].item()
        gae, adv = 0.0, []
        for r, v in zip(reversed(rew), reversed(val)):
            gae = r + gamma * nxt - v + gamma * lam * gae
            nxt = v
            adv.append(gae)
        adv.reverse()
        adv_b += adv
        ret_b += [a + v for a, v in zip(adv, val)]
        lengths.append(len(rew))
    return (
        torch.stack(obs_b),
        torch.stack(act_b),
        torch.stack(logp_b),
        torch.tensor(adv_b, dtype=torch.float32),
        torch.tensor(ret_b, dtype=torch.float32),
    ), np.mean(lengths)


def update(net, opt, batch, args):
    obs, act, logp_old, adv, ret = batch
    n = len(obs)
    log = []
    for _ in range(args.epochs):
        perm = torch.randperm(n)
        for start in range(0, n, args.minibatch):
            mb = perm[start : start + args.minibatch]
            if len(mb) < (2 if MENDED else 1):
                continue
            a = adv[mb]
            a = (a - a.mean()) / (a.std() + 1e-8)
            mean, value = net(obs[mb])
            ratio = (net.log_prob(mean, act[mb]) - logp_old[mb]).exp()
            pg = -torch.min(ratio * a, ratio.clamp(1 - args.clip, 1 + args.clip) * a).mean()
            vf = (value - ret[mb]).pow(2).mean()
            loss = pg + 0.01 * vf - 0.001 * net.log_std.sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            log.append((loss.item(), pg.item(), vf.item()))
    return log


def main(args):
    torch.manual_seed(args.seed)
    env, net = CartEnv(args.seed), ActorCritic(4)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    steps = 0
    for it in range(args.iterations):
        batch, ep_len = collect(env, net, args.rollout)
        log = update(net, opt, batch, args)
        steps += len(log)
        loss, pg, vf = np.mean(log, axis=0)
        print(
            f"iter {it:3d} step {steps:4d} n {len(batch[0])} loss {loss:.4f} pi {pg:.4f} vf {vf:.3f} "
            f"ep_len {ep_len:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=20)
    p.add_argument("--rollout", type=int, default=256)
    p.add_argument("--minibatch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--seed", type=int, default=8)
    main(p.parse_args())
