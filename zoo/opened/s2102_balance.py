# expect: sick
# symptom: episode length never improves while Q-values creep up to 1/(1-gamma) and the TD loss gets small
# axis: loss
# cause: the TD target bootstraps through terminal states: the done flag stored for the mask is the time-limit truncation, not termination, so falling over is never given zero future value
# says: (?=[\s\S]*(bootstrap|terminal|terminat|done|truncat))(?=[\s\S]*(bootstrap[^.]{0,60}(through|past|beyond|across|over)|not masked|unmasked|mask|truncat|(wrong|never|ignor)[^.]{0,40}done|done[^.]{0,60}(wrong|never|ignor|always|zero|missing)))
# onset_step: 0
# fix: store terminated (the pole fell) as the done flag that masks the bootstrap term
# mended: yes
import os
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

Batch = namedtuple("Batch", "obs act rew nxt done")


class VecCartPole:
    """N cart-poles stepped together, five-value step API with auto reset."""

    def __init__(self, n, limit=200, seed=0):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.s = self._fresh(n)
        self.t = np.zeros(n, dtype=np.int64)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def reset(self):
        self.s = self._fresh(self.n)
        self.t[:] = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w**2 * s) / 1.1
        acc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        xa = tmp - 0.05 * acc * c / 1.1
        dt = 0.02
        self.s = np.stack([x + dt * v, v + dt * xa, th + dt * w, w + dt * acc], 1)
        self.t += 1
        terminated = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095)
        truncated = (self.t >= self.limit) & ~terminated
        final_obs = self.s.astype(np.float32)
        over = terminated | truncated
        lengths = self.t[over].tolist()
        if over.any():
            self.s[over] = self._fresh(int(over.sum()))
            self.t[over] = 0
        info = {"final_obs": final_obs, "lengths": lengths}
        return self.s.astype(np.float32), np.ones(self.n, np.float32), terminated, truncated, info


class Replay:
    def __init__(self, cap):
        self.cap, self.size, self.pos = cap, 0, 0
        self.obs = np.zeros((cap, 4), np.float32)
        self.nxt = np.zeros((cap, 4), np.float32)
        self.act = np.zeros(cap, np.int64)
        self.rew = np.zeros(cap, np.float32)
        self.done = np.zeros(cap, np.float32)

    def add(self, o, a, r, n, d):
        idx = (self.pos + np.arange(len(o))) % self.cap
        self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx], self.done[idx] = o, a, r, n, d
        self.pos = (self.pos + len(o)) % self.cap
        self.size = min(self.cap, self.size + len(o))

    def sample(self, k, rng):
        i = rng.integers(0, self.size, k)
        return Batch(*(torch.from_numpy(z[i]) for z in (self.obs, self.act, self.rew, self.nxt, self.done)))


class QNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.adv = nn.Linear(hidden, 1), nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, gamma=0.97, lr=1e-3, tau=0.02):
        self.q, self.target = QNet(), QNet()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma, self.tau = gamma, tau

    @torch.no_grad()
    def act(self, obs, eps, rng):
        greedy = self.q(torch.from_numpy(obs)).argmax(1).numpy()
        return np.where(rng.random(len(obs)) < eps, rng.integers(0, 2, len(obs)), greedy)

    def update(self, b):
        with torch.no_grad():
            best = self.q(b.nxt).argmax(1, keepdim=True)
            boot = self.target(b.nxt).gather(1, best).squeeze(1)
            y = b.rew + self.gamma * (1.0 - b.done) * boot
        q = self.q(b.obs).gather(1, b.act[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        with torch.no_grad():
            for p, t in zip(self.q.parameters(), self.target.parameters()):
                t.lerp_(p, self.tau)
        return loss.item(), q.mean().item()


def main(updates=800, n_env=16, batch=128):
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    env, buf, agent = VecCartPole(n_env, seed=3), Replay(20000), Agent()
    obs = env.reset()
    recent, step = [], 0
    while step < updates:
        eps = max(0.05, 1.0 - step / 300)
        act = agent.act(obs, eps, rng)
        nxt, rew, terminated, truncated, info = env.step(act)
        done = terminated if MENDED else truncated
        buf.add(obs, act, rew, info["final_obs"], done.astype(np.float32))
        obs = nxt
        recent = (recent + info["lengths"])[-40:]
        if buf.size < 640:
            continue
        loss, qm = agent.update(buf.sample(batch, rng))
        if step % 40 == 0:
            ret = np.mean(recent) if recent else float("nan")
            print(f"update {step:4d} loss {loss:.4f} q {qm:.2f} eps {eps:.2f} return {ret:.1f}")
        step += 1
    test = VecCartPole(24, seed=77)
    o, alive, total = test.reset(), np.ones(24, bool), np.zeros(24)
    for _ in range(200):
        o, r, term, trunc, _ = test.step(agent.act(o, 0.0, rng))
        total += r * alive
        alive &= ~(term | trunc)
    print(f"eval return {total.mean():.1f}")


if __name__ == "__main__":
    main()
