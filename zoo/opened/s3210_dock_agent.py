# expect: sick
# symptom: TD loss goes down smoothly but the agent's return does not get better than that of a random policy
# axis: data
# cause: the environment returns its live state array, so stored transitions in the replay alias one array
# says: alias|same (array|object|buffer|memory)|(in.?place|overwrit|mutat|referenc|not cop|without cop|missing cop)
# onset_step: 0
# fix: return a copy of the state array from the environment
# mended: the script applies that change if the environment has MENDED=1
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)
random.seed(21)
MENDED = os.environ.get("MENDED") == "1"
GAMMA, BATCH, UPDATES, ENV_PER_UPDATE = 0.92, 64, 450, 6


class Dock:
    """A boat on a line: thrusters push it left or right, the dock is somewhere."""

    THRUST = (-0.25, 0.0, 0.25)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        x, dock = self.rng.uniform(-1.5, 1.5, size=2)
        self.state = np.array([x, 0.0, dock], dtype=np.float32)
        return self._obs()

    def step(self, action):
        s = self.state
        s[1] = 0.7 * s[1] + self.THRUST[action]
        s[0] += s[1]
        if abs(s[0]) > 2.0:
            s[0], s[1] = np.clip(s[0], -2.0, 2.0), 0.0
        self.t += 1
        reward = -float(abs(s[0] - s[2]))
        return self._obs(), reward, self.t >= 30

    def _obs(self):
        return self.state.copy() if MENDED else self.state


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.adv = nn.Linear(64, 1), nn.Linear(64, 3)

    def forward(self, s):
        h = self.body(s)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class Replay:
    def __init__(self, size):
        self.data = deque(maxlen=size)

    def add(self, *row):
        self.data.append(row)

    def sample(self, n):
        s, a, r, s2 = zip(*random.sample(self.data, n))
        return (torch.from_numpy(np.stack(s)), torch.tensor(a), torch.tensor(r), torch.from_numpy(np.stack(s2)))


@torch.no_grad()
def act(q, s, eps):
    if random.random() < eps:
        return random.randrange(3)
    return int(q(torch.from_numpy(s)[None]).argmax())


def evaluate(q, episodes=40):
    env, total = Dock(777), 0.0
    for _ in range(episodes):
        s, done = env.reset(), False
        while not done:
            s, r, done = env.step(act(q, s, 0.0))
            total += r
    return total / episodes


def main():
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=2e-3)
    env, replay = Dock(1), Replay(5000)
    s, ep_ret, returns = env.reset(), 0.0, deque(maxlen=15)
    print(f"untrained greedy return {evaluate(q):.2f}")
    warm = 600
    for k in range(warm + UPDATES * ENV_PER_UPDATE):
        step = (k - warm) // ENV_PER_UPDATE
        eps = 1.0 if k < warm else max(0.1, 1.0 - step / 250)
        a = act(q, s, eps)
        s2, r, done = env.step(a)
        replay.add(s, a, r, s2)
        ep_ret += r
        s = s2
        if done:
            returns.append(ep_ret)
            s, ep_ret = env.reset(), 0.0
        if k < warm or (k - warm) % ENV_PER_UPDATE:
            continue
        bs, ba, br, bs2 = replay.sample(BATCH)
        with torch.no_grad():
            best = q(bs2).argmax(1, keepdim=True)
            goal = br + GAMMA * target(bs2).gather(1, best).squeeze(1)
        pred = q(bs).gather(1, ba[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(pred, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for tp, p in zip(target.parameters(), q.parameters()):
                tp.lerp_(p, 0.03)
        if step % 50 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} eps {eps:.2f} return {np.mean(returns):.2f}")
    print(f"final loss {loss.item():.4f} greedy return {evaluate(q):.2f}")


if __name__ == "__main__":
    main()
