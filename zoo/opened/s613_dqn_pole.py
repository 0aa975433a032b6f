# expect: sick
# symptom: Q values climb past anything the rewards allow and the agent keeps dropping the pole after about ten steps
# axis: loss
# cause: the TD target bootstraps from the next state even when the episode ended there, so falling over costs nothing
# says: (terminal|done|episode.?(end|bound|over|termination)|terminat).{0,100}(bootstrap|mask|target|ignored|missing|not (used|applied|zeroed|masked|cut)|unused|next.?(state|value|q))|(bootstrap|mask|target|next.?(state|value|q)|td).{0,100}(terminal|\bdones?\b|(1 ?- ?|not.?)done|episode.?(end|bound|over|termination)|terminat)
# onset_step: 1
# fix: multiply the bootstrapped value by (1 - done)
# mended: with MENDED=1 the target is reward + gamma * (1 - done) * max Q(next)
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

GAMMA = 0.98
N_ENVS = 16
BATCH = 128
STEPS = 800
SYNC_EVERY = 20
UPDATE_WARMUP = 60


class PoleVec:
    """Vectorised cart-pole with the classic constants; an episode ends on a fall or after 200 steps."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.s = self.fresh(n)
        self.t = np.zeros(n, dtype=np.int64)

    def fresh(self, n):
        return self.rng.uniform(-0.05, 0.05, (n, 4))

    def step(self, a):
        x, xd, th, thd = self.s.T
        force = np.where(a == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * thd**2 * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c**2 / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.s = np.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha], 1)
        self.t += 1
        fell = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.21)
        timeout = self.t >= 200
        nxt = self.s.copy()
        over = fell | timeout
        lengths = self.t[over].tolist()
        if over.any():
            self.s[over] = self.fresh(int(over.sum()))
            self.t[over] = 0
        return nxt, np.ones(self.n), fell, lengths


class Replay:
    def __init__(self, cap):
        self.buf = deque(maxlen=cap)

    def push(self, *rows):
        self.buf.extend(zip(*rows))

    def sample(self, n):
        s, a, r, s2, d = zip(*random.sample(self.buf, n))
        f = lambda v: torch.as_tensor(np.asarray(v), dtype=torch.float32)
        return f(s), torch.as_tensor(np.asarray(a)), f(r), f(s2), f(d)


def q_net():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


@torch.no_grad()
def play(q, rng, n=16):
    env = PoleVec(n, rng)
    alive, length = np.ones(n, bool), np.zeros(n)
    for _ in range(200):
        a = q(torch.as_tensor(env.s, dtype=torch.float32)).argmax(1).numpy()
        _, _, fell, _ = env.step(a)
        length += alive
        alive &= ~fell
    return length.mean()


def main():
    random.seed(0)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env, memory = PoleVec(N_ENVS, rng), Replay(10000)
    q, target = q_net(), q_net()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    recent = deque(maxlen=40)

    updates, tick = 0, 0
    while updates < STEPS:
        tick += 1
        eps = max(0.05, 1.0 - tick / 250)
        obs = env.s.copy()
        with torch.no_grad():
            greedy = q(torch.as_tensor(obs, dtype=torch.float32)).argmax(1).numpy()
        act = np.where(rng.random(N_ENVS) < eps, rng.integers(0, 2, N_ENVS), greedy)
        nxt, rew, done, lengths = env.step(act)
        memory.push(obs, act, rew, nxt, done)
        recent.extend(lengths)
        if tick < UPDATE_WARMUP:
            continue

        s, a, r, s2, d = memory.sample(BATCH)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            q_next = target(s2).gather(1, best).squeeze(1)
            if MENDED:
                q_next = q_next * (1 - d)
            y = r + GAMMA * q_next
        q_sa = q(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q_sa, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        updates += 1
        if updates % SYNC_EVERY == 0:
            target.load_state_dict(q.state_dict())
        if updates % 50 == 0:
            mean_len = sum(recent) / max(1, len(recent))
            print(
                f"update {updates} loss {loss.item():.4f} q {q_sa.mean().item():.2f} episode_len {mean_len:.1f}",
                flush=True,
            )

    print(f"greedy episode length {play(q, np.random.default_rng(9)):.1f} of 200")


if __name__ == "__main__":
    main()
