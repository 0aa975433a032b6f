# expect: sick
# symptom: the TD loss is small and Q values climb smoothly, but the policy never balances the pole (returns stay near random)
# axis: loss
# cause: the TD target bootstraps from the next state even when the episode ended (terminal / done flag not used), so failing costs nothing and all Q values go to the same constant
# says: (done|terminal|termination|episode.{0,6}end|absorbing)\w*[^.]{0,120}(not|never|ignore|n't|unused|miss|without|mask|bootstrap|past|through|across|omit|drop)|(ignor|miss|without|lack|omit|not us|no |forg)\w*[^.]{0,60}(done|terminal)|bootstrap\w*[^.]{0,80}(done|terminal|episode|end)
# onset_step: 0
# fix: multiply the bootstrap term by (1 - done)
# mended: MENDED=1 masks the bootstrap value at terminal states
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class CartPoles:
    """A row of cart-pole simulators stepped together."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.s = self._fresh(n)
        self.t = np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, size=(k, 4))

    def step(self, a):
        x, v, th, w = self.s.T
        force = np.where(a == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        nxt = np.stack([x + 0.02 * v, v + 0.02 * xa, th + 0.02 * w, w + 0.02 * tha], 1)
        self.t += 1
        fell = (np.abs(nxt[:, 0]) > 2.4) | (np.abs(nxt[:, 2]) > 12 * math.pi / 180)
        cut = self.t >= 300
        lengths = self.t[fell | cut].tolist()
        obs = nxt.copy()
        over = fell | cut
        nxt[over] = self._fresh(over.sum())
        self.t[over] = 0
        self.s = nxt
        return obs, np.ones(self.n), fell, lengths


class Replay:
    def __init__(self, cap=20000):
        self.cap, self.n, self.i = cap, 0, 0
        self.s, self.s2 = np.zeros((cap, 4), np.float32), np.zeros((cap, 4), np.float32)
        self.a, self.r, self.d = np.zeros(cap, np.int64), np.zeros(cap, np.float32), np.zeros(cap, np.float32)

    def push(self, s, a, r, s2, d):
        for j in range(len(a)):
            i = self.i
            self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s[j], a[j], r[j], s2[j], d[j]
            self.i = (i + 1) % self.cap
            self.n = min(self.n + 1, self.cap)

    def sample(self, b, rng):
        ix = rng.integers(0, self.n, size=b)
        return [torch.from_numpy(z[ix]) for z in (self.s, self.a, self.r, self.s2, self.d)]


def make_net():
    return nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))


class Agent:
    def __init__(self, gamma=0.97, lr=2e-3, tau=0.02):
        self.q, self.target = make_net(), make_net()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma, self.tau = gamma, tau

    @torch.no_grad()
    def act(self, s, eps, rng):
        a = self.q(torch.from_numpy(s).float()).argmax(1).numpy()
        rnd = rng.random(len(a)) < eps
        a[rnd] = rng.integers(0, 2, size=rnd.sum())
        return a

    def learn(self, batch):
        s, a, r, s2, d = batch
        qsa = self.q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            nxt = self.target(s2).gather(1, best).squeeze(1)
            if MENDED:
                nxt = nxt * (1 - d)
            y = r + self.gamma * nxt
        loss = F.smooth_l1_loss(qsa, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        with torch.no_grad():
            for p, t in zip(self.q.parameters(), self.target.parameters()):
                t.lerp_(p, self.tau)
        return loss.item(), qsa.mean().item()


def main():
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env, agent, buf = CartPoles(16, seed=5), Agent(), Replay()
    returns = []
    for t in range(960):
        eps = max(0.05, 1.0 - t / 400)
        s = env.s.copy()
        a = agent.act(s, eps, rng)
        s2, r, d, lengths = env.step(a)
        buf.push(s, a, r, s2, d)
        returns += lengths
        if t < 60:
            continue
        loss, q = agent.learn(buf.sample(128, rng))
        if t % 60 == 0:
            print(f"update {t - 60:4d} td_loss {loss:.4f} mean_q {q:.2f} return(last 30) {np.mean(returns[-30:]):.1f}")
    test = CartPoles(32, seed=77)
    got = []
    for _ in range(600):
        got += test.step(agent.act(test.s.copy(), 0.0, rng))[3]
    print(f"greedy return {np.mean(got):.1f} over {len(got)} episodes")


if __name__ == "__main__":
    main()
