# expect: sick
# symptom: the mean Q value climbs without end, past 1/(1-gamma), the TD error grows with it, and the episode length falls below that of random play
# axis: loss
# cause: the TD target bootstraps from the next state even when the episode has terminated (no (1 - done) mask), so falling over costs nothing and the Q values feed on untrained states and grow without bound
# says: \bdone|terminal|terminat|end of (the |an )?episode|episode.{0,20}(end|over|bound)|bootstrap\w*.{0,60}(past|beyond|across|through|after)
# onset_step: 1
# fix: multiply the bootstrapped value by (1 - terminated)
# mended: yes
"""Double DQN on a vectorised cart-pole (numpy dynamics, 32 copies in parallel)."""

import collections
import copy
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

N_ENVS = 32
GAMMA = 0.98
BATCH = 256
UPDATES = 900
ENV_STEPS_PER_UPDATE = 2
SYNC_EVERY = 25
LR = 1e-3
MAX_LEN = 300


class VecCartPole:
    """Barto, Sutton & Anderson cart-pole; an episode ends outside |x|<2.4 or |theta|<12 deg."""

    g, mc, mp, half, force, dt = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, int)
        self.finished = collections.deque(maxlen=100)

    def step(self, a):
        x, xd, th, thd = self.s.T
        f = np.where(a == 1, self.force, -self.force)
        m = self.mc + self.mp
        tmp = (f + self.mp * self.half * thd**2 * np.sin(th)) / m
        acc = (self.g * np.sin(th) - np.cos(th) * tmp) / (self.half * (4 / 3 - self.mp * np.cos(th) ** 2 / m))
        xacc = tmp - self.mp * self.half * acc * np.cos(th) / m
        nxt = np.stack([x + self.dt * xd, xd + self.dt * xacc, th + self.dt * thd, thd + self.dt * acc], 1)
        self.t += 1
        terminated = (np.abs(nxt[:, 0]) > 2.4) | (np.abs(nxt[:, 2]) > 12 * np.pi / 180)
        truncated = self.t >= MAX_LEN
        over = terminated | truncated
        self.finished.extend(self.t[over].tolist())
        self.s = nxt.copy()
        self.s[over] = self.rng.uniform(-0.05, 0.05, (over.sum(), 4))
        self.t[over] = 0
        return nxt, np.ones(len(a)), terminated


class Replay:
    def __init__(self, size):
        self.size, self.n, self.i = size, 0, 0
        self.s = torch.zeros(size, 4)
        self.s2 = torch.zeros(size, 4)
        self.a = torch.zeros(size, dtype=torch.long)
        self.r = torch.zeros(size)
        self.done = torch.zeros(size)

    def add(self, s, a, r, s2, done):
        k = len(a)
        at = (self.i + torch.arange(k)) % self.size
        self.s[at] = torch.as_tensor(s, dtype=torch.float32)
        self.s2[at] = torch.as_tensor(s2, dtype=torch.float32)
        self.a[at] = torch.as_tensor(a)
        self.r[at] = torch.as_tensor(r, dtype=torch.float32)
        self.done[at] = torch.as_tensor(done, dtype=torch.float32)
        self.i = (self.i + k) % self.size
        self.n = min(self.size, self.n + k)

    def sample(self, k, gen):
        j = torch.randint(0, self.n, (k,), generator=gen)
        return self.s[j], self.a[j], self.r[j], self.s2[j], self.done[j]


def q_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


SCALE = torch.tensor([1.0, 1.0, 5.0, 1.0])


def act(q, s, eps, rng):
    with torch.no_grad():
        greedy = q(torch.as_tensor(s, dtype=torch.float32) * SCALE).argmax(1).numpy()
    return np.where(rng.random(len(s)) < eps, rng.integers(0, 2, len(s)), greedy)


def td_loss(q, q_target, batch):
    s, a, r, s2, done = batch
    s, s2 = s * SCALE, s2 * SCALE
    with torch.no_grad():
        best = q(s2).argmax(1, keepdim=True)
        nxt = q_target(s2).gather(1, best).squeeze(1)
        if os.environ.get("MENDED") == "1":
            nxt = nxt * (1 - done)
        y = r + GAMMA * nxt
    pred = q(s).gather(1, a[:, None]).squeeze(1)
    return nn.functional.mse_loss(pred, y), pred.mean().item()


def greedy_length(q, seed=99):
    env, rng = VecCartPole(32, seed), np.random.default_rng(seed)
    alive = np.ones(32, bool)
    length = np.zeros(32)
    for _ in range(MAX_LEN):
        _, _, term = env.step(act(q, env.s, 0.0, rng))
        length += alive
        alive &= ~term
    return length.mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    gen = torch.Generator().manual_seed(0)
    env, memory = VecCartPole(N_ENVS, 1), Replay(30000)
    q = q_network()
    q_target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=LR)
    for _ in range(60):
        s, a = env.s.copy(), rng.integers(0, 2, N_ENVS)
        s2, r, d = env.step(a)
        memory.add(s, a, r, s2, d)
    for u in range(1, UPDATES + 1):
        eps = max(0.05, 1.0 - u / 400)
        for _ in range(ENV_STEPS_PER_UPDATE):
            s = env.s.copy()
            a = act(q, s, eps, rng)
            s2, r, d = env.step(a)
            memory.add(s, a, r, s2, d)
        loss, qmean = td_loss(q, q_target, memory.sample(BATCH, gen))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        if u % SYNC_EVERY == 0:
            q_target.load_state_dict(q.state_dict())
        if u % 50 == 0:
            print(
                f"update {u} eps {eps:.2f} td {loss.item():.4f} mean q {qmean:.2f} "
                f"episode length {np.mean(env.finished):.1f}"
            )
        if u % 300 == 0:
            print(f"  greedy evaluation: {greedy_length(q):.1f} of {MAX_LEN}")
