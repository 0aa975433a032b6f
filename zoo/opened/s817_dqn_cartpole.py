# expect: sick
# symptom: the Q values grow without bound, the loss grows with them and episodes do not get longer
# axis: loss
# cause: the bootstrap target ignores terminal states (no factor 1-done), so the value of a failed state is still added
# says: \bdones?\b|terminal|terminat\w+|end of (the )?episode|episode (end|bound)|absorbing
# onset_step: 1
# fix: multiply the bootstrapped value by (1 - done)
# mended: with MENDED=1 the target is r + gamma * (1 - done) * max Q
import math
import os
from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
Batch = namedtuple("Batch", "s a r s2 done")


class VecCartPole:
    """N copies of the classic cart-pole, stepped together; episodes end on failure."""

    def __init__(self, n, limit=200):
        self.n, self.limit = n, limit
        self.state = torch.empty(n, 4).uniform_(-0.05, 0.05)
        self.age = torch.zeros(n)
        self.finished = []

    def step(self, action):
        x, v, th, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        c, s = th.cos(), th.sin()
        tmp = (force + 0.05 * w * w * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        acc_x = tmp - 0.05 * acc_th * c / 1.1
        dt = 0.02
        nxt = torch.stack([x + dt * v, v + dt * acc_x, th + dt * w, w + dt * acc_th], 1)
        self.age += 1
        failed = (nxt[:, 0].abs() > 2.4) | (nxt[:, 2].abs() > 12 * math.pi / 180)
        over = failed | (self.age >= self.limit)
        out = nxt.clone()
        if over.any():
            self.finished += self.age[over].tolist()
            nxt[over] = torch.empty(int(over.sum()), 4).uniform_(-0.05, 0.05)
            self.age[over] = 0
        self.state = nxt
        return out, torch.ones(self.n), failed.float()


class Replay:
    def __init__(self, size):
        self.s, self.s2 = torch.zeros(size, 4), torch.zeros(size, 4)
        self.a = torch.zeros(size, dtype=torch.long)
        self.r, self.done = torch.zeros(size), torch.zeros(size)
        self.size, self.ptr, self.count = size, 0, 0

    def push(self, s, a, r, s2, done):
        idx = (self.ptr + torch.arange(len(a))) % self.size
        self.s[idx], self.a[idx], self.r[idx], self.s2[idx], self.done[idx] = s, a, r, s2, done
        self.ptr = (self.ptr + len(a)) % self.size
        self.count = min(self.size, self.count + len(a))

    def sample(self, n):
        i = torch.randint(0, self.count, (n,))
        return Batch(self.s[i], self.a[i], self.r[i], self.s2[i], self.done[i])


def q_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class Agent:
    def __init__(self, gamma=0.98, lr=2e-3, sync=20):
        self.q, self.target = q_network(), q_network()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma, self.sync, self.updates = gamma, sync, 0

    @torch.no_grad()
    def act(self, s, eps):
        greedy = self.q(s).argmax(1)
        rnd = torch.randint(0, 2, greedy.shape)
        return torch.where(torch.rand(len(s)) < eps, rnd, greedy)

    def learn(self, b):
        q = self.q(b.s).gather(1, b.a[:, None]).squeeze(1)
        with torch.no_grad():
            nxt = self.target(b.s2).max(1).values
            if os.environ.get("MENDED") == "1":
                nxt = nxt * (1 - b.done)
            y = b.r + self.gamma * nxt
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        self.updates += 1
        if self.updates % self.sync == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item(), q.mean().item()


def main():
    torch.manual_seed(5)
    env, memory, agent = VecCartPole(16), Replay(20000), Agent()
    for it in range(1, 1701):
        eps = max(0.05, 1.0 - it / 800)
        s = env.state.clone()
        a = agent.act(s, eps)
        s2, r, done = env.step(a)
        memory.push(s, a, r, s2, done)
        if it > 100 and it % 2 == 0:
            loss, qv = agent.learn(memory.sample(256))
            if agent.updates % 50 == 0:
                recent = env.finished[-40:]
                print(
                    f"update {agent.updates:4d} eps {eps:.2f} loss {loss:.4f} mean q {qv:8.2f} "
                    f"episode length {sum(recent) / len(recent):.1f}"
                )


if __name__ == "__main__":
    main()
