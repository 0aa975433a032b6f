# expect: healthy
# symptom: policy loss hovers around zero and never falls, value loss rises, returns are noisy (looks like no learning)
# axis: loss
"""Advantage actor-critic with GAE in a small key-door grid world (numpy env, vectorised)."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class HP:
    envs: int = 24
    rollout: int = 20
    updates: int = 450
    gamma: float = 0.97
    lam: float = 0.95
    ent: float = 0.01
    ent_end: float = 0.003
    vf: float = 0.5
    lr: float = 2.5e-3
    seed: int = 3


class KeyDoor:
    """6x6 grid. Fetch the key, then reach the door. Reward 0.2 for the key, 1 for the door."""

    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
    size, limit = 6, 48

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.me, self.key, self.door = (np.zeros((n, 2), int) for _ in range(3))
        self.has, self.t = np.zeros(n, bool), np.zeros(n, int)
        self.ret = np.zeros(n)
        self.finished = []
        for i in range(n):
            self._new(i)

    def _new(self, i):
        cells = self.rng.choice(self.size**2, 3, replace=False)
        for arr, c in zip((self.me, self.key, self.door), cells):
            arr[i] = divmod(int(c), self.size)
        self.has[i], self.t[i], self.ret[i] = False, 0, 0.0

    def obs(self):
        o = np.zeros((self.n, 4, self.size, self.size), np.float32)
        k = np.arange(self.n)
        o[k, 0, self.me[:, 0], self.me[:, 1]] = 1
        o[k, 1, self.key[:, 0], self.key[:, 1]] = ~self.has
        o[k, 2, self.door[:, 0], self.door[:, 1]] = 1
        o[:, 3] = self.has[:, None, None]
        return torch.from_numpy(o)

    def step(self, a):
        slip = self.rng.random(self.n) < 0.05
        a = np.where(slip, self.rng.integers(0, 4, self.n), a)
        self.me = np.clip(self.me + self.moves[a], 0, self.size - 1)
        got = ~self.has & (self.me == self.key).all(1)
        self.has |= got
        win = self.has & (self.me == self.door).all(1)
        r = 0.2 * got + 1.0 * win - 0.01
        self.t += 1
        self.ret += r
        cut = ~win & (self.t >= self.limit)
        last = self.obs() if cut.any() else None
        for i in np.flatnonzero(win | cut):
            self.finished.append((self.ret[i], bool(win[i])))
            self._new(i)
        return self.obs(), torch.tensor(r, dtype=torch.float32), torch.tensor(win), torch.tensor(cut), last


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(4, 24, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 36, 128), nn.ReLU()
        )
        self.pi, self.v = nn.Linear(128, 4), nn.Linear(128, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.zeros_(self.pi.bias)

    def forward(self, o):
        h = self.trunk(o)
        return self.pi(h), self.v(h).squeeze(-1)


def collect(agent, env, hp, obs):
    O, A, R, V, NV, END = [], [], [], [], [], []
    for _ in range(hp.rollout):
        with torch.no_grad():
            logits, v = agent(obs)
            a = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            nxt, r, win, cut, last = env.step(a.numpy())
            nv = agent(nxt)[1]
            if last is not None:
                nv = torch.where(cut, agent(last)[1], nv)
            nv = nv * ~win
        O.append(obs), A.append(a), R.append(r), V.append(v), NV.append(nv), END.append(win | cut)
        obs = nxt
    adv, run = [None] * hp.rollout, torch.zeros(hp.envs)
    for t in reversed(range(hp.rollout)):
        delta = R[t] + hp.gamma * NV[t] - V[t]
        run = delta + hp.gamma * hp.lam * run * ~END[t]
        adv[t] = run
    adv, val = torch.stack(adv), torch.stack(V)
    return obs, torch.cat(O), torch.cat(A), adv.flatten(), (adv + val).flatten()


def main(hp=HP()):
    torch.manual_seed(hp.seed)
    env, agent = KeyDoor(hp.envs, hp.seed), Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=hp.lr, eps=1e-5)
    obs = env.obs()
    for u in range(1, hp.updates + 1):
        frac = u / hp.updates
        for group in opt.param_groups:
            group["lr"] = hp.lr * (1 - 0.9 * frac)
        obs, o, a, adv, target = collect(agent, env, hp, obs)
        logits, v = agent(o)
        logp = F.log_softmax(logits, -1)
        norm = (adv - adv.mean()) / (adv.std() + 1e-6)
        pg = -(logp.gather(1, a[:, None]).squeeze(1) * norm).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        vloss = F.mse_loss(v, target)
        beta = hp.ent + (hp.ent_end - hp.ent) * frac
        loss = pg + hp.vf * vloss - beta * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        if u % 25 == 0:
            rets, wins = zip(*env.finished[-200:])
            print(
                f"update {u:4d}  loss {loss.item():+.4f}  pg {pg.item():+.4f}  v {vloss.item():.4f}  "
                f"H {entropy.item():.3f}  return {np.mean(rets):+.3f}  success {np.mean(wins):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
