# expect: sick
# symptom: PPO improves for a number of updates, then the loss is NaN out of nowhere and the policy never recovers
# axis: loss
# cause: advantages are normalised per minibatch, and when the rollout length leaves a last minibatch of a single sample, adv.std() of one element is NaN
# says: (advantage|\badv\b|normali[sz]\w+|\bstd\b).{0,100}\b(single|one|1|lone)[ _-](sample|element|row|item|transition|value|entry)|(advantage|\badv\b|\bstd\b|normali[sz]\w+).{0,80}size.{0,4}(1|one)\b|\b(single|one|1|lone)[ _-](sample|element|row|item|transition|value|entry).{0,80}(\bstd\b|advantage|normali[sz]|mini.?batch|batch|unbiased)|(single|one|1).(sample|element).(mini.?)?batch|(mini.?)?batch.{0,4}(of|with|has|holds|contains).{0,12}\b(1|one|single)\b|\bstd\b.{0,40}(nan|undefined|degrees of freedom)|unbiased
# onset_step: 334
# fix: skip the leftover minibatch (or normalise only when it has more than one sample)
# mended: with MENDED=1 the minibatch loop skips a chunk with fewer than two samples
import math
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class CartPole:
    """The classic control task, integrated by Euler steps."""

    def __init__(self, rng, limit=200):
        self.rng, self.limit = rng, limit

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, a):
        x, v, th, w = self.s
        force = 10.0 if a == 1 else -10.0
        c, s = math.cos(th), math.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        acc_x = tmp - 0.05 * acc_th * c / 1.1
        self.s = np.array([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th])
        self.t += 1
        fail = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.209
        return self.s.astype(np.float32), 1.0, fail, self.t >= self.limit


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.v = nn.Sequential(
            nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )


def log_prob(logit, action):
    return -nn.functional.binary_cross_entropy_with_logits(logit, action, reduction="none")


@torch.no_grad()
def collect(env, net, min_steps, gamma=0.99, lam=0.95):
    obs, act, adv, ret, lengths = [], [], [], [], []
    while len(obs) < min_steps:
        s, ep_s, ep_a, rew = env.reset(), [], [], []
        while True:
            p = torch.sigmoid(net.pi(torch.from_numpy(s))).item()
            a = 1.0 if env.rng.random() < p else 0.0
            ep_s.append(s)
            ep_a.append(a)
            s, r, fail, timeout = env.step(a)
            rew.append(r)
            if fail or timeout:
                break
        vals = net.v(torch.tensor(np.array(ep_s + [s]))).squeeze(-1).numpy()
        if fail:
            vals[-1] = 0.0
        run, ep_adv = 0.0, [0.0] * len(rew)
        for t in reversed(range(len(rew))):
            delta = rew[t] + gamma * vals[t + 1] - vals[t]
            run = delta + gamma * lam * run
            ep_adv[t] = run
        obs += ep_s
        act += ep_a
        adv += ep_adv
        ret += [a + v for a, v in zip(ep_adv, vals[:-1])]
        lengths.append(len(rew))
    obs = torch.tensor(np.array(obs))
    act, adv, ret = (torch.tensor(z, dtype=torch.float32) for z in (act, adv, ret))
    return obs, act, adv, ret, log_prob(net.pi(obs).squeeze(-1), act), float(np.mean(lengths))


def main(seed=4):
    torch.manual_seed(seed)
    env = CartPole(np.random.default_rng(seed))
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    minibatch, updates = 64, 0
    for it in range(22):
        obs, act, adv, ret, old_logp, mean_len = collect(env, net, 480)
        for epoch in range(4):
            for idx in torch.randperm(len(obs)).split(minibatch):
                if os.environ.get("MENDED") == "1" and len(idx) < 2:
                    continue
                a = adv[idx]
                a = (a - a.mean()) / (a.std() + 1e-8)
                logit = net.pi(obs[idx]).squeeze(-1)
                ratio = (log_prob(logit, act[idx]) - old_logp[idx]).exp()
                pg = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                v_loss = nn.functional.mse_loss(net.v(obs[idx]).squeeze(-1), ret[idx])
                p, ls = torch.sigmoid(logit), nn.functional.logsigmoid
                entropy = -(p * ls(logit) + (1 - p) * ls(-logit)).mean()
                loss = pg + 0.005 * v_loss - 0.005 * entropy
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                updates += 1
        print(f"iter {it:2d} updates {updates:4d} episode length {mean_len:6.1f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
