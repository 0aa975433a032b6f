# expect: sick
# symptom: the quantity that is to get better gets worse
# axis: loss
# cause: a term of the loss has the wrong sign
# says: (wrong|flipped|missing|opposite).{0,20}(sign|minus|negat)|(sign|minus).{0,60}|(maximi|minimi)[sz].{0,60}
# onset_step: 0
# fix: turn the sign of the term
# mended: the same with the fix
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

MENDED = os.environ.get("MENDED") == "1"


class CourierTown:
    """Each order belongs to a district; two road choices in a row decide the tip."""

    def __init__(self, n, districts=6, roads=5, seed=0):
        self.rng = np.random.default_rng(seed)
        self.tips = self.rng.uniform(0, 0.6, (districts, roads, roads))
        for d in range(districts):
            i, j = self.rng.integers(roads, size=2)
            self.tips[d, i, j] = 2.0
        self.n, self.districts, self.roads = n, districts, roads

    def _obs(self):
        o = np.zeros((self.n, self.districts + self.roads), dtype=np.float32)
        o[np.arange(self.n), self.where] = 1
        if self.first is not None:
            o[np.arange(self.n), self.districts + self.first] = 1
        return torch.from_numpy(o)

    def reset(self):
        self.where = self.rng.integers(self.districts, size=self.n)
        self.first = None
        return self._obs()

    def step(self, a):
        if self.first is None:
            self.first = a
            return self._obs(), torch.zeros(self.n)
        tip = self.tips[self.where, self.first, a] + 0.3 * self.rng.normal(size=self.n)
        return None, torch.tensor(tip, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 48), nn.Tanh())
        self.pi, self.v = nn.Linear(48, n_act), nn.Linear(48, 1)

    def forward(self, o):
        z = self.body(o)
        return Categorical(logits=self.pi(z)), self.v(z).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=240)
    ap.add_argument("--envs", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--vf-coef", type=float, default=0.5)
    ap.add_argument("--ent-coef", type=float, default=0.35)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = CourierTown(args.envs, seed=args.seed)
    net = ActorCritic(env.districts + env.roads, env.roads)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    tips = []
    for u in range(1, args.updates + 1):
        obs = env.reset()
        logps, values, ents = [], [], []
        for _ in range(2):
            dist, value = net(obs)
            action = dist.sample()
            logps.append(dist.log_prob(action))
            ents.append(dist.entropy())
            values.append(value)
            obs, reward = env.step(action.numpy())
        tips.append(reward.mean().item())
        values = torch.stack(values)
        adv = reward - values.detach()
        policy_loss = -(torch.stack(logps) * adv).mean()
        value_loss = F.mse_loss(values, reward.expand_as(values))
        entropy = torch.stack(ents).mean()
        beta = args.ent_coef * (1 - u / args.updates)
        if MENDED:
            beta = -beta
        loss = policy_loss + args.vf_coef * value_loss + beta * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if u % 60 == 0:
            print(f"update {u} loss {loss.item():.3f} entropy {entropy.item():.3f} return {np.mean(tips[-20:]):.3f}")


main()
