# expect: sick
# symptom: nothing crashes and the entropy looks normal, but the value loss stays about as high as the variance of the returns (explained variance near 0) and the mean return gets far less good than it should
# axis: loss
# cause: the critic gives [N, 1] and the returns are [N]; their difference broadcasts to an N x N matrix, so each value is fitted to all returns (the mean) and the advantages are not those of their own states
# says: broadcast|\b(n|batch|b)\s*[x×,]\s*(n|batch|b)\b.{0,20}(matrix|shape|tensor)?|shape.{0,40}(mismatch|\(?n, ?1|differ)|squeeze|(\[|\()(n|b|batch\w*|\d{2,}), ?1(\]|\))|unsqueezed|trailing dim
# onset_step: 0
# fix: squeeze the value head's last dimension before it meets the returns
# mended: the values are squeezed to [N]
"""Advantage actor-critic for a home battery: buy, hold or sell against an hourly price."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)


class BatteryFleet:
    """n houses in parallel; each has its own demand, and tomorrow's price curve is noisy."""

    HOURS, CAP = 16, 4

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.hour = 0
        self.charge = self.rng.integers(0, self.CAP + 1, self.n).astype(float)
        self.demand = self.rng.uniform(0.0, 10.0, self.n)
        self.phase = self.rng.uniform(0, 2 * np.pi, self.n)
        self.level = self.rng.uniform(0.6, 1.4, self.n)
        return self._obs()

    def _price(self):
        return self.level * (1 + 0.8 * np.sin(2 * np.pi * self.hour / 8 + self.phase))

    def _obs(self):
        p = self._price()
        ang = 2 * np.pi * self.hour / 8 + self.phase
        cols = [
            self.charge / self.CAP,
            self.demand / 10,
            p,
            np.sin(ang),
            np.cos(ang),
            np.full(self.n, self.hour / self.HOURS),
            self.level,
            self.demand * p / 10,
        ]
        return torch.tensor(np.stack(cols, 1), dtype=torch.float32)

    def step(self, action):
        move = action.numpy() - 1.0  # -1 sell, 0 hold, 1 buy
        move = np.clip(move, -self.charge, self.CAP - self.charge)
        price = self._price()
        reward = -price * (self.demand + move) - 0.02 * np.abs(move)
        self.charge += move
        self.hour += 1
        done = self.hour == self.HOURS
        return self._obs(), torch.tensor(reward, dtype=torch.float32), done, -price * move


class ActorCritic(nn.Module):
    def __init__(self, obs=8, hidden=64, actions=3):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, actions)
        )
        self.v = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.pi(obs)), self.v(obs)


GAMMA, N = 0.95, 24
env = BatteryFleet(N, seed=1)
net = ActorCritic()
opt = torch.optim.Adam([{"params": net.pi.parameters(), "lr": 3e-3}, {"params": net.v.parameters(), "lr": 5e-3}])


def rollout():
    obs, out, profit = env.reset(), [], 0.0
    done = False
    while not done:
        with torch.no_grad():
            action = net(obs)[0].sample()
        nxt, reward, done, gain = env.step(action)
        out.append((obs, action, reward))
        profit += gain.mean()
        obs = nxt
    ret, returns = torch.zeros(N), []
    for _, _, reward in reversed(out):
        ret = reward + GAMMA * ret
        returns.append(ret)
    returns.reverse()
    return (torch.cat([o for o, _, _ in out]), torch.cat([a for _, a, _ in out]), torch.cat(returns), profit)


history = []
for update in range(600):
    obs, actions, returns, profit = rollout()
    returns = returns / 20.0
    dist, values = net(obs)
    if MENDED:
        values = values.squeeze(-1)
    advantage = returns - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -(dist.log_prob(actions) * advantage).mean()
    value_loss = (returns - values).pow(2).mean()
    entropy = dist.entropy().mean()
    loss = policy_loss + 0.5 * value_loss - 0.005 * entropy
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    history.append(profit)
    if update % 40 == 0 or update == 599:
        print(
            f"update {update:3d} loss {loss.item():.4f} value_loss {value_loss.item():.4f} "
            f"entropy {entropy.item():.3f} trading profit per day {np.mean(history[-40:]):.3f}"
        )
