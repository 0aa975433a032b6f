# expect: sick
# symptom: the temporal-difference loss is small and calm, but the return stays far below what the agent should reach; nothing explodes
# axis: precision
# cause: the target network is kept in bfloat16, so the soft update with tau = 0.01 is rounded away and the target network (almost) never moves
# says: (bf16|bfloat16|low.?precision|precision|round|mantissa).{0,200}(target|polyak|soft.?update|\btau\b|lerp)|(target|polyak|soft.?update|\btau\b|lerp).{0,200}(bf16|bfloat16|half.precision|low.?precision|precision|round|mantissa)
# onset_step: 1
# fix: keep the target network in float32
# mended: yes
"""Double DQN on a key-and-door grid, vectorised over 96 copies of the room."""

import copy
import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


@dataclass
class Config:
    size: int = 4
    envs: int = 96
    gamma: float = 0.96
    tau: float = 0.01
    lr: float = 1e-3
    batch: int = 512
    buffer: int = 45000
    warmup: int = 40
    iters: int = 900
    eps_end: float = 0.08
    eps_iters: int = 700
    target_dtype: torch.dtype = torch.float32 if os.environ.get("MENDED") == "1" else torch.bfloat16
    seed: int = 3


class Rooms:
    """Pick up the key, then go to the door. The key costs 0.4, the door pays 5, a move costs 0.02."""

    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, cfg, seed):
        self.n, self.s = cfg.envs, cfg.size
        self.rng = np.random.default_rng(seed)
        self.agent = np.zeros((self.n, 2), int)
        self.key = np.zeros((self.n, 2), int)
        self.door = np.zeros((self.n, 2), int)
        self.has = np.zeros(self.n, bool)
        self.t = np.zeros(self.n, int)
        self._reset(np.ones(self.n, bool))

    def _reset(self, mask):
        for i in np.flatnonzero(mask):
            cells = self.rng.permutation(self.s * self.s)[:3]
            self.agent[i], self.key[i], self.door[i] = [divmod(c, self.s) for c in cells]
        self.has[mask] = False
        self.t[mask] = 0

    def obs(self):
        out = np.zeros((self.n, 3, self.s, self.s), np.float32)
        r = np.arange(self.n)
        out[r, 0, self.agent[:, 0], self.agent[:, 1]] = 1
        free = ~self.has
        out[r[free], 1, self.key[free, 0], self.key[free, 1]] = 1
        out[r, 2, self.door[:, 0], self.door[:, 1]] = 1
        return out.reshape(self.n, -1)

    def step(self, a):
        self.agent = np.clip(self.agent + self.moves[a], 0, self.s - 1)
        rew = np.full(self.n, -0.02, np.float32)
        got = (~self.has) & (self.agent == self.key).all(1)
        rew[got] -= 0.4
        self.has |= got
        done = self.has & (self.agent == self.door).all(1)
        rew[done] += 5
        self.t += 1
        cut = (self.t >= 40) & ~done
        nxt = self.obs()
        self._reset(done | cut)
        return nxt, rew, done, cut


class Replay:
    def __init__(self, cap, dim):
        self.cap, self.i, self.full = cap, 0, False
        self.o = np.zeros((cap, dim), np.float32)
        self.o2 = np.zeros((cap, dim), np.float32)
        self.a = np.zeros(cap, np.int64)
        self.r = np.zeros(cap, np.float32)
        self.d = np.zeros(cap, np.float32)

    def add(self, o, a, r, o2, d):
        for k in range(len(a)):
            j = self.i
            self.o[j], self.a[j], self.r[j], self.o2[j], self.d[j] = o[k], a[k], r[k], o2[k], d[k]
            self.i = (self.i + 1) % self.cap
            self.full |= self.i == 0

    def sample(self, n, rng):
        idx = rng.integers(0, self.cap if self.full else self.i, n)
        return [torch.from_numpy(x[idx]) for x in (self.o, self.a, self.r, self.o2, self.d)]


def make_net(cfg):
    d = 3 * cfg.size**2
    net = nn.Sequential(nn.Linear(d, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 4))
    for i, gain in ((0, 2.0), (2, 2.0), (4, 0.5)):
        nn.init.orthogonal_(net[i].weight, gain)
        nn.init.zeros_(net[i].bias)
    return net


@torch.no_grad()
def soft_update(target, online, tau):
    for pt, po in zip(target.parameters(), online.parameters()):
        pt.lerp_(po.to(pt.dtype), tau)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    random.seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    env = Rooms(cfg, cfg.seed)
    q = make_net(cfg)
    q_targ = copy.deepcopy(q).to(cfg.target_dtype).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=cfg.lr)
    mem = Replay(cfg.buffer, 3 * cfg.size**2)
    obs, returns, running, start = env.obs(), [], np.zeros(cfg.envs), time.time()

    for it in range(1, cfg.iters + cfg.warmup + 1):
        eps = max(cfg.eps_end, 1 - it / cfg.eps_iters)
        with torch.no_grad():
            greedy = q(torch.from_numpy(obs)).argmax(1).numpy()
        act = np.where(rng.random(cfg.envs) < eps, rng.integers(0, 4, cfg.envs), greedy)
        nxt, rew, done, cut = env.step(act)
        mem.add(obs, act, rew, nxt, done)
        running += rew
        for i in np.flatnonzero(done | cut):
            returns.append(running[i])
            running[i] = 0
        obs = env.obs()
        if it <= cfg.warmup:
            continue

        o, a, r, o2, d = mem.sample(cfg.batch, rng)
        with torch.no_grad():
            best = q(o2).argmax(1, keepdim=True)
            nq = q_targ(o2.to(cfg.target_dtype)).float().gather(1, best).squeeze(1)
            y = r + cfg.gamma * (1 - d) * nq
        loss = nn.functional.smooth_l1_loss(q(o).gather(1, a[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        soft_update(q_targ, q, cfg.tau)
        n = it - cfg.warmup
        if n % 50 == 0:
            print(
                f"update {n:4d} | td loss {loss.item():.4f} | mean q {y.mean().item():.3f} | "
                f"return(last 100) {np.mean(returns[-100:]):.3f} | eps {eps:.2f}"
            )
    print(f"done, {len(returns)} episodes, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
