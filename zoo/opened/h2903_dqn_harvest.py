# expect: healthy
# symptom: resembles a diverging DQN: the TD loss rises during training and jumps at every copy of the target network
# axis: harness
"""Double DQN with hard target copies: a picker on an orchard grid collects ripe fruit before it rots."""

import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIZE, HORIZON, GAMMA = 5, 24, 0.95
MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]


class Orchards:
    """A vector of independent orchards. Observation: picker plane and fruit freshness plane."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.pos = np.zeros((n, 2), int)
        self.fresh = np.zeros((n, SIZE, SIZE), np.float32)
        self.t = np.zeros(n, int)
        for i in range(n):
            self._reset(i)
        self.t = self.rng.integers(0, HORIZON, n)

    def _reset(self, i):
        self.pos[i] = self.rng.integers(0, SIZE, 2)
        self.fresh[i] = 0
        self.t[i] = 0
        for _ in range(2):
            self._grow(i)

    def _grow(self, i):
        y, x = self.rng.integers(0, SIZE, 2)
        if self.fresh[i, y, x] == 0:
            self.fresh[i, y, x] = 1.0

    def obs(self):
        o = np.zeros((self.n, 2, SIZE, SIZE), np.float32)
        o[np.arange(self.n), 0, self.pos[:, 0], self.pos[:, 1]] = 1
        o[:, 1] = self.fresh
        return o

    def step(self, actions):
        reward = np.full(self.n, -0.05, np.float32)
        self.fresh = np.maximum(self.fresh - 0.08, 0)
        for i, a in enumerate(actions):
            self.pos[i] = np.clip(self.pos[i] + MOVES[a], 0, SIZE - 1)
            y, x = self.pos[i]
            if self.fresh[i, y, x] > 0:
                reward[i] += 1.0
                self.fresh[i, y, x] = 0
            if self.rng.random() < 0.25:
                self._grow(i)
        self.t += 1
        nxt = self.obs()
        done = self.t >= HORIZON
        for i in np.flatnonzero(done):
            self._reset(i)
        return nxt, reward, done


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(24 * SIZE * SIZE, 64), nn.ReLU(), nn.Linear(64, 1))
        self.adv = nn.Sequential(nn.Linear(24 * SIZE * SIZE, 64), nn.ReLU(), nn.Linear(64, len(MOVES)))

    def forward(self, o):
        h = self.conv(o).flatten(1)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


@torch.no_grad()
def play(net, n=40):
    env = Orchards(n, 999)
    env.t[:] = 0
    total = np.zeros(n)
    for _ in range(HORIZON):
        _, r, _ = env.step(net(torch.from_numpy(env.obs())).argmax(1).numpy())
        total += r
    return total.mean()


def main():
    torch.manual_seed(6)
    random.seed(6)
    rng = np.random.default_rng(6)
    env, net, target = Orchards(16, 3), QNet(), QNet()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=7e-4)
    memory = deque(maxlen=12000)
    print(f"untrained return {play(net):.2f}")
    obs, updates, losses, qs = env.obs(), 0, [], []
    for it in range(900):
        eps = max(0.05, 1.0 - it / 450)
        with torch.no_grad():
            act = net(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(env.n) < eps
        act[explore] = rng.integers(0, len(MOVES), explore.sum())
        nxt, rew, done = env.step(act)
        # episodes end by the clock only (time limit, not a property of the state), hence the bootstrap is kept
        memory.extend(zip(obs, act, rew, nxt))
        obs = env.obs()
        if it < 60:
            continue
        o, a, r, o2 = (torch.from_numpy(np.stack(c)) for c in zip(*random.sample(memory, 64)))
        with torch.no_grad():
            best = net(o2).argmax(1, keepdim=True)
            y = r + GAMMA * target(o2).gather(1, best).squeeze(1)
        q = net(o).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        updates += 1
        losses.append(loss.item())
        qs.append(q.mean().item())
        if updates % 60 == 0:
            target.load_state_dict(net.state_dict())
        if updates % 40 == 0:
            print(f"update {updates:4d} eps {eps:.2f} td {np.mean(losses[-40:]):.4f} q {np.mean(qs[-40:]):.3f}")
        if updates % 160 == 0:
            print(f"   greedy return {play(net):.2f}")


if __name__ == "__main__":
    main()
