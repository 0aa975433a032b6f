# expect: sick
# symptom: Q values grow without bound far above the possible return, the TD loss grows too, the policy stays bad
# axis: loss
# cause: the TD target bootstraps from the next state even when the episode has terminated (no 1 - done factor)
# says: terminal|terminat|\bdones?\b|end of (the |an )?episode|episode end|absorbing
# onset_step: 0
# fix: multiply the bootstrap term by (1 - done)
# mended: the script applies that change if the environment has MENDED=1
"""DQN for a balancing cart (a vectorised inverted pendulum on a rail)."""

import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)


class BalanceVec:
    """n carts in parallel; reward 1 for every tick on which the pole is still up."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.s = self._fresh(n)

    def _fresh(self, k):
        return self.rng.uniform(-0.3, 0.3, size=(k, 2)).astype(np.float32)

    def step(self, action):
        angle, vel = self.s[:, 0], self.s[:, 1]
        push = np.where(action == 1, 1.0, np.where(action == 0, -1.0, 0.0))
        vel = vel + 0.1 * (2.5 * angle + 1.6 * push) + 0.03 * self.rng.standard_normal(self.n)
        angle = angle + 0.1 * vel
        nxt = np.stack([angle, vel], 1).astype(np.float32)
        done = np.abs(angle) > 0.8
        self.s = nxt.copy()
        if done.any():
            self.s[done] = self._fresh(int(done.sum()))
        return nxt, np.ones(self.n, np.float32), done


class Replay:
    def __init__(self, size):
        self.size, self.n, self.at = size, 0, 0
        self.obs = np.zeros((size, 2), np.float32)
        self.nxt = np.zeros((size, 2), np.float32)
        self.act = np.zeros(size, np.int64)
        self.rew = np.zeros(size, np.float32)
        self.done = np.zeros(size, np.float32)

    def add(self, obs, act, rew, nxt, done):
        k = (self.at + np.arange(len(act))) % self.size
        self.obs[k], self.act[k], self.rew[k], self.nxt[k], self.done[k] = obs, act, rew, nxt, done
        self.at = (self.at + len(act)) % self.size
        self.n = min(self.size, self.n + len(act))

    def sample(self, size, rng):
        k = rng.integers(0, self.n, size)
        return [torch.from_numpy(a[k]) for a in (self.obs, self.act, self.rew, self.nxt, self.done)]


def survival(net, ticks=200, n=32):
    env = BalanceVec(n, seed=99)
    alive, total = np.ones(n, bool), np.zeros(n)
    for _ in range(ticks):
        with torch.no_grad():
            a = net(torch.from_numpy(env.s)).argmax(1).numpy()
        _, _, done = env.step(a)
        total += alive
        alive &= ~done
    return total.mean()


def main(steps=500, gamma=0.97):
    rng = np.random.default_rng(5)
    env, buf = BalanceVec(32, seed=1), Replay(20000)
    q = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=2e-3)

    def collect(eps):
        obs = env.s.copy()
        with torch.no_grad():
            a = q(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(len(a)) < eps
        a[explore] = rng.integers(0, 2, explore.sum())
        nxt, r, done = env.step(a)
        buf.add(obs, a, r, nxt, done)

    for _ in range(60):
        collect(1.0)
    for step in range(steps):
        for _ in range(2):
            collect(max(0.1, 1.0 - step / 250))
        obs, act, rew, nxt, done = buf.sample(128, rng)
        with torch.no_grad():
            future = target(nxt).max(1).values * ((1 - done) if MENDED else 1)
            goal = rew + gamma * future
        value = q(obs).gather(1, act[:, None]).squeeze(1)
        loss = F.mse_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            target.load_state_dict(q.state_dict())
        if step % 50 == 0:
            print(f"step {step:4d} td_loss {loss.item():.4f} q {value.mean().item():.2f} survival {survival(q):.1f}")
    print(f"final survival {survival(q):.1f} of 200")


if __name__ == "__main__":
    main()
