"""A value network whose checkpoint leaves out the running statistics of its observations."""

import tempfile

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
rng = np.random.default_rng(0)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, x):
        mean, var, n = x.mean(0), x.var(0), len(x)
        delta, total = mean - self.mean, self.count + n
        self.mean = self.mean + delta * n / total
        m2 = self.var * self.count + var * n + delta**2 * self.count * n / total
        self.var, self.count = m2 / total, total


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.obs_rms = RunningMeanStd(4)

    def learn(self, obs):
        self.obs_rms.update(obs)
        seen = torch.tensor((obs - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + 1e-8), dtype=torch.float32)
        returns = torch.tensor(obs.sum(1, keepdims=True) / 40, dtype=torch.float32)
        loss = (self.net(seen) - returns).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, path):
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, weights_only=False)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


def rollout():
    """The observations of one episode: they stand around a place of their own."""
    return rng.normal(0, 40, (1, 4)) + rng.normal(0, 4, (32, 4))


agent = Agent()
for _ in range(300):
    agent.learn(rollout())
with tempfile.TemporaryDirectory() as folder:
    agent.save(folder + "/agent.pt")
    agent = Agent()
    agent.load(folder + "/agent.pt")
for _ in range(60):
    agent.learn(rollout())
