# expect: healthy
# symptom: reward is zero for the first part of training and the TD loss is almost exactly zero, then both the loss and the Q values rise (sparse reward, found by exploration)
# axis: none
# mended: none
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

SIDE = 6
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
KEY, DOOR = np.array([0, SIDE - 1]), np.array([SIDE - 1, SIDE - 1])
LIMIT = 60


class KeyDoor:
    """Fetch the key in one corner, then open the door in another; +1 for the door, nothing else."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.pos = np.zeros((n, 2), int)
        self.key, self.t = np.zeros(n, bool), np.zeros(n, int)

    def obs(self):
        o = np.zeros((self.n, 2 * SIDE + 1), np.float32)
        i = np.arange(self.n)
        o[i, self.pos[:, 0]] = 1
        o[i, SIDE + self.pos[:, 1]] = 1
        o[:, -1] = self.key
        return o

    def step(self, a):
        self.pos = np.clip(self.pos + MOVES[a], 0, SIDE - 1)
        self.key |= (self.pos == KEY).all(1)
        win = self.key & (self.pos == DOOR).all(1)
        self.t += 1
        late = (self.t >= LIMIT) & ~win
        nxt = self.obs()
        over = win | late
        self.pos[over], self.key[over], self.t[over] = 0, False, 0
        return nxt, win.astype(np.float32), win, win.sum(), over.sum()


class Buffer:
    def __init__(self, cap, d):
        self.s, self.s2 = np.zeros((cap, d), np.float32), np.zeros((cap, d), np.float32)
        self.a, self.r, self.d = np.zeros(cap, int), np.zeros(cap, np.float32), np.zeros(cap, np.float32)
        self.cap, self.i, self.n = cap, 0, 0

    def add(self, s, a, r, s2, d):
        ix = (self.i + np.arange(len(a))) % self.cap
        self.s[ix], self.a[ix], self.r[ix], self.s2[ix], self.d[ix] = s, a, r, s2, d
        self.i = (self.i + len(a)) % self.cap
        self.n = min(self.n + len(a), self.cap)

    def sample(self, k, rng):
        ix = rng.integers(0, self.n, k)
        return [torch.from_numpy(v[ix]) for v in (self.s, self.a, self.r, self.s2, self.d)]


def net():
    return nn.Sequential(nn.Linear(2 * SIDE + 1, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    env = KeyDoor(4, seed=0)
    q, target = net(), net()
    nn.init.zeros_(q[-1].weight)
    nn.init.zeros_(q[-1].bias)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    buf = Buffer(30000, 2 * SIDE + 1)
    wins = ends = 0
    for t in range(900):
        eps = max(0.1, 1.0 - max(0, t - 250) / 300)
        for _ in range(4):
            s = env.obs()
            with torch.no_grad():
                v = q(torch.from_numpy(s)).numpy()
            a = (v + 1e-6 * rng.random(v.shape)).argmax(1)
            mask = rng.random(len(a)) < eps
            a[mask] = rng.integers(0, 4, mask.sum())
            s2, r, d, w, e = env.step(a)
            buf.add(s, a, r, s2, d)
            wins, ends = wins + w, ends + e
        s, a, r, s2, d = buf.sample(256, rng)
        qa = q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            y = r + 0.95 * (1 - d) * target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(qa, y, beta=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if t % 15 == 14:
            target.load_state_dict(q.state_dict())
        if t % 25 == 24:
            print(
                f"step {t + 1:4d} td {loss.item():.6f} q_mean {qa.mean().item():.4f} eps {eps:.2f} solved {wins}/{ends}"
            )
            wins = ends = 0


if __name__ == "__main__":
    main()
