# expect: healthy
# symptom: resembles lost weights or a bad resume: TD loss jumps and returns dip at regular intervals
# axis: harness
"""Double DQN that drives a picking robot to an item between shelves; the last layers are re-drawn every so often against primacy bias."""

from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SIZE, N_ENV, GAMMA, HORIZON = 5, 16, 0.9, 30
UPDATES, WARMUP, BATCH = 900, 30, 128
REDRAW_AT = {250, 450}
MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
SHELVES = np.zeros((SIZE, SIZE), bool)
SHELVES[1, 1:4] = SHELVES[3, 2:4] = True


class Picker:
    """N_ENV robots, each sent to one item at a time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pos = np.zeros((N_ENV, 2), int)
        self.item = np.zeros((N_ENV, 2), int)
        self.age = np.zeros(N_ENV, int)
        for i in range(N_ENV):
            self._spawn(i)

    def _free(self):
        while True:
            c = self.rng.integers(0, SIZE, 2)
            if not SHELVES[c[0], c[1]]:
                return c

    def _spawn(self, i):
        self.pos[i], self.item[i] = self._free(), self._free()
        self.age[i] = 0

    def observe(self):
        o = np.zeros((N_ENV, 3, SIZE, SIZE), np.float32)
        n = np.arange(N_ENV)
        o[n, 0, self.pos[:, 0], self.pos[:, 1]] = 1
        o[n, 1, self.item[:, 0], self.item[:, 1]] = 1
        o[:, 2] = SHELVES
        return o

    def step(self, action):
        reward = np.full(N_ENV, -0.02, np.float32)
        new = np.clip(self.pos + MOVES[action], 0, SIZE - 1)
        blocked = SHELVES[new[:, 0], new[:, 1]]
        self.pos = np.where(blocked[:, None], self.pos, new)
        done = (self.pos == self.item).all(1)
        reward[done] += 1.0
        self.age += 1
        nxt = self.observe()
        over = done | (self.age >= HORIZON)
        for i in np.flatnonzero(over):
            self._spawn(i)
        return nxt, reward, done, over


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(24 * SIZE * SIZE, 96), nn.ReLU(), nn.Linear(96, 4))

    def forward(self, o):
        return self.head(self.body(o))


def redraw_head(online, target, opt):
    for layer in online.head:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    for p in online.head.parameters():
        opt.state.pop(p, None)
    target.load_state_dict(online.state_dict())


def main():
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    env = Picker(4)
    online, target = QNet(), QNet()
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=1e-3)
    memory, returns, run = deque(maxlen=1500), deque(maxlen=120), np.zeros(N_ENV)
    obs = env.observe()
    for it in range(WARMUP + UPDATES * 2):
        eps = max(0.1, 1 - it / 700)
        with torch.no_grad():
            greedy = online(torch.from_numpy(obs)).argmax(1).numpy()
        act = np.where(rng.random(N_ENV) < eps, rng.integers(0, 4, N_ENV), greedy)
        nxt, rew, done, over = env.step(act)
        memory.append((obs, act, rew, nxt, done))
        run += rew
        returns.extend(run[over])
        run[over] = 0
        obs = env.observe()
        if it < WARMUP or it % 2:
            continue
        up = (it - WARMUP) // 2 + 1
        if up in REDRAW_AT:
            redraw_head(online, target, opt)
        rows = [memory[k] for k in rng.integers(0, len(memory), BATCH)]
        col = rng.integers(0, N_ENV, BATCH)
        o, a, r, n, d = (torch.from_numpy(np.stack([row[j][c] for row, c in zip(rows, col)])) for j in range(5))
        with torch.no_grad():
            best = online(n).argmax(1, keepdim=True)
            goal = r + GAMMA * (~d) * target(n).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(online(o).gather(1, a[:, None]).squeeze(1), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters()):
                q.lerp_(p, 0.05)
        if up % 25 == 0:
            print(
                f"update {up} eps {eps:.2f} td {loss.item():.4f} return {np.mean(returns) if returns else 0:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
