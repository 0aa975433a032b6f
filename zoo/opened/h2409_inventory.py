# expect: healthy
# symptom: the policy loss is noisy around zero, changes sign and never falls
# axis: loss
"""Advantage actor-critic for a perishable-goods stock room.

Sixty-four shops are stepped in parallel.  Every day an order size is chosen;
sales earn money, holding and waste cost some, and running dry costs goodwill.
"""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Shops:
    """Vectorised environment; state is (fresh, old, weekday, demand level)."""

    ORDERS = np.array([0, 2, 4, 6, 8, 12])

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.level = self.rng.uniform(2, 7, n)
        self.fresh = self.rng.integers(0, 6, n).astype(float)
        self.old = np.zeros(n)
        self.day = self.rng.integers(0, 7, n)

    def observe(self):
        week = 2 * np.pi * self.day / 7
        obs = np.stack([self.fresh / 8, self.old / 8, np.sin(week), np.cos(week), self.level / 5], 1)
        return torch.tensor(obs, dtype=torch.float32)

    def step(self, action):
        order = self.ORDERS[action]
        demand = self.rng.poisson(self.level * np.where(self.day >= 5, 1.5, 0.9))
        from_old = np.minimum(demand, self.old)
        from_fresh = np.minimum(demand - from_old, self.fresh)
        sold = from_old + from_fresh
        waste = self.old - from_old
        reward = 1.0 * sold - 0.45 * order - 0.3 * waste - 0.25 * (demand - sold)
        self.old = self.fresh - from_fresh
        self.fresh = order.astype(float)
        self.day = (self.day + 1) % 7
        self.level = np.clip(self.level + self.rng.normal(0, 0.15, self.n), 1.5, 8)
        return torch.tensor(reward, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, len(Shops.ORDERS))
        self.v = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.zeros_(self.pi.bias)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def gae(rewards, values, last, gamma=0.9, lam=0.9):
    adv, run = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    nxt = last
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * nxt - values[t]
        run = delta + gamma * lam * run
        adv[t] = run
        nxt = values[t]
    return adv, adv + values


def main():
    torch.set_num_threads(1)
    torch.manual_seed(17)
    env = Shops(64, 17)
    model = ActorCritic()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.99, eps=1e-5)
    updates, horizon = 850, 8
    profit, pol, crit, ent = [], [], [], []
    for update in range(1, updates + 1):
        for group in opt.param_groups:
            group["lr"] = 1e-3 * (1 - 0.9 * update / updates)
        obs, acts, rews = [], [], []
        for _ in range(horizon):
            o = env.observe()
            with torch.no_grad():
                a = model(o)[0].sample()
            obs.append(o)
            acts.append(a)
            rews.append(env.step(a.numpy()))
        obs, acts, rews = torch.stack(obs), torch.stack(acts), torch.stack(rews)
        dist, values = model(obs)
        with torch.no_grad():
            last = model(env.observe())[1]
            adv, ret = gae(rews, values, last)
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy_loss = -(dist.log_prob(acts) * adv).mean()
        value_loss = 0.5 * (values - ret).pow(2).mean()
        entropy = dist.entropy().mean()
        loss = policy_loss + 0.5 * value_loss - 0.005 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        profit.append(rews.mean().item())
        pol.append(policy_loss.item())
        crit.append(value_loss.item())
        ent.append(entropy.item())
        if update % 35 == 0:
            w = slice(-35, None)
            print(
                f"{update:4d}  loss {loss.item():+.3f}  policy {np.mean(pol[w]):+.4f}  "
                f"critic {np.mean(crit[w]):.3f}  entropy {np.mean(ent[w]):.3f}  "
                f"daily profit {np.mean(profit[w]):+.3f}"
            )


main()
