# expect: healthy
# symptom: the critic loss is small for a long time and then rises more than tenfold (0.05 to about 4) when the policy begins to find the reward and the actor loss keeps changing (it is minus a Q value); the actor is updated only every second step and the target networks get no gradient
# axis: none
# mended: none
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(0)

GAMMA, TAU, BATCH, STEPS = 0.97, 0.01, 128, 900
POLICY_DELAY, POLICY_NOISE, NOISE_CLIP, EXPL = 2, 0.2, 0.5, 0.25


class Reach:
    """Point mass with drag; the bonus is paid only within a small distance of the goal, so rewards are rare at first."""

    def __init__(self, n=16, horizon=40):
        self.n, self.h = n, horizon
        self.p, self.v, self.g = (np.zeros((n, 2)) for _ in range(3))
        self.t = np.zeros(n, int)
        self.reset(np.arange(n))
        self.t = rng.integers(0, horizon, n)

    def reset(self, i):
        self.p[i] = rng.uniform(-1, 1, (len(i), 2))
        self.v[i] = 0
        self.g[i] = rng.uniform(-1, 1, (len(i), 2))
        self.t[i] = 0

    def obs(self):
        return np.concatenate([self.p - self.g, self.v, self.g], 1).astype(np.float32)

    def step(self, a):
        self.v = 0.8 * self.v + 0.2 * a
        self.p = np.clip(self.p + 0.4 * self.v, -2, 2)
        d = np.linalg.norm(self.p - self.g, axis=1)
        r = 10.0 * (d < 0.2) - 0.1 * d - 0.02 * (a**2).sum(1)
        self.t += 1
        nxt = self.obs()
        trunc = np.flatnonzero(self.t >= self.h)
        if len(trunc):
            self.reset(trunc)
        return nxt, r.astype(np.float32), (d < 0.2)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, o))


class Actor(nn.Module):
    def __init__(self, do, da):
        super().__init__()
        self.net = mlp(do, da)

    def forward(self, o):
        return torch.tanh(self.net(o))


class Critic(nn.Module):
    def __init__(self, do, da):
        super().__init__()
        self.q1, self.q2 = mlp(do + da, 1), mlp(do + da, 1)

    def forward(self, o, a):
        x = torch.cat([o, a], -1)
        return self.q1(x), self.q2(x)

    def first(self, o, a):
        return self.q1(torch.cat([o, a], -1))


class Replay:
    def __init__(self, cap=50000):
        self.d, self.cap, self.n, self.i = None, cap, 0, 0

    def add(self, *cols):
        if self.d is None:
            self.d = [np.zeros((self.cap,) + c.shape[1:], np.float32) for c in cols]
        idx = (self.i + np.arange(len(cols[0]))) % self.cap
        for d, c in zip(self.d, cols):
            d[idx] = c
        self.i = (self.i + len(idx)) % self.cap
        self.n = min(self.cap, self.n + len(idx))

    def sample(self, k):
        idx = rng.integers(0, self.n, k)
        return [torch.from_numpy(d[idx]) for d in self.d]


def main():
    env, buf = Reach(), Replay()
    actor, critic = Actor(6, 2), Critic(6, 2)
    actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
    a_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
    c_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)

    o = env.obs()
    for _ in range(60):
        a = rng.uniform(-1, 1, (env.n, 2)).astype(np.float32)
        o2, r, _ = env.step(a)
        buf.add(o, a, r[:, None], o2)
        o = env.obs()
    a_loss, hits = torch.zeros(()), []
    for step in range(STEPS):
        for _ in range(2):
            with torch.no_grad():
                a = actor(torch.from_numpy(o)).numpy()
            a = np.clip(a + EXPL * rng.normal(size=a.shape), -1, 1).astype(np.float32)
            o2, r, hit = env.step(a)
            buf.add(o, a, r[:, None], o2)
            o = env.obs()
            hits.append(hit.mean())

        bo, ba, br, bo2 = buf.sample(BATCH)
        with torch.no_grad():
            noise = (torch.randn_like(ba) * POLICY_NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
            a2 = (actor_t(bo2) + noise).clamp(-1, 1)
            # episodes end by the time limit only, so every transition bootstraps
            y = br + GAMMA * torch.min(*critic_t(bo2, a2))
        q1, q2 = critic(bo, ba)
        c_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()

        if step % POLICY_DELAY == 0:
            a_loss = -critic.first(bo, actor(bo)).mean()
            a_opt.zero_grad()
            a_loss.backward()
            a_opt.step()
            with torch.no_grad():
                for net, tgt in ((actor, actor_t), (critic, critic_t)):
                    for p, q in zip(net.parameters(), tgt.parameters()):
                        q.lerp_(p, TAU)
        if step % 10 == 0:
            print(
                f"step {step} loss {c_loss.item():.4f} actor_loss {a_loss.item():.3f} mean_q {q1.mean().item():.2f} at_goal {np.mean(hits[-40:]):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
