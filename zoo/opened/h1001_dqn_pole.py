# expect: healthy
# symptom: the TD loss rises again and again by a factor of ten and more, is full of spikes, Q values grow to dozens; but the return rises to the maximum, as it should with DQN (larger returns, hard target updates)
# axis: none
# mended: none
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)
rng = np.random.default_rng(2)

MAX_T, GAMMA = 200, 0.99


class Poles:
    """several cart-poles side by side"""

    def __init__(self, n):
        self.n, self.s, self.t = n, rng.uniform(-0.05, 0.05, (n, 4)), np.zeros(n, int)

    def step(self, a):
        x, xd, th, thd = self.s.T
        f = np.where(a == 1, 10.0, -10.0)
        c, si = np.cos(th), np.sin(th)
        tmp = (f + 0.05 * thd**2 * si) / 1.1
        tha = (9.8 * si - c * tmp) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.s = np.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha], 1)
        self.t += 1
        fell = (abs(self.s[:, 0]) > 2.4) | (abs(self.s[:, 2]) > 0.21)
        nxt = self.s.copy()
        over = fell | (self.t >= MAX_T)
        lengths = self.t[over].tolist()
        k = int(over.sum())
        if k:
            self.s[over] = rng.uniform(-0.05, 0.05, (k, 4))
            self.t[over] = 0
        return nxt, fell, lengths


class Replay:
    def __init__(self, cap=20000):
        self.cap, self.n, self.i = cap, 0, 0
        self.s, self.s2 = np.zeros((cap, 4), np.float32), np.zeros((cap, 4), np.float32)
        self.a, self.d = np.zeros(cap, np.int64), np.zeros(cap, np.float32)

    def add(self, s, a, s2, d):
        k = (self.i + np.arange(len(a))) % self.cap
        self.s[k], self.a[k], self.s2[k], self.d[k] = s, a, s2, d
        self.i, self.n = (self.i + len(a)) % self.cap, min(self.cap, self.n + len(a))

    def sample(self, m):
        k = rng.integers(0, self.n, m)
        return (torch.from_numpy(v[k]) for v in (self.s, self.a, self.s2, self.d))


def qnet():
    return nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))


def main():
    env, mem = Poles(8), Replay()
    q, target = qnet(), qnet()
    target.load_state_dict(q.state_dict())
    for p in target.parameters():
        p.requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    lengths, t0 = [], time.time()
    for step in range(-40, 901):
        eps = max(0.04, 1 - max(step, 0) / 300)
        for _ in range(4):
            s = env.s.copy()
            with torch.no_grad():
                a = q(torch.tensor(s, dtype=torch.float32)).argmax(1).numpy()
            a = np.where(rng.random(env.n) < eps, rng.integers(0, 2, env.n), a)
            s2, fell, done = env.step(a)
            mem.add(s, a, s2, fell)
            lengths += done
        if step < 1:
            continue
        s, a, s2, d = mem.sample(128)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            y = 1.0 + GAMMA * (1 - d) * target(s2).gather(1, best).squeeze(1)
        qa = q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.mse_loss(qa, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        if step % 30 == 0:
            target.load_state_dict(q.state_dict())
        if step % 10 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} q {qa.mean().item():.2f} eps {eps:.2f} "
                f"episode length {np.mean(lengths[-20:]):.1f} t {time.time() - t0:.1f}s",
                flush=True,
            )


main()
