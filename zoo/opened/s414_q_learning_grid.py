# expect: sick
# symptom: the TD loss and the mean Q value grow beyond any possible return, while the greedy policy stays poor
# axis: harness
# cause: the target network is a shallow copy (copy.copy) that shares its parameters with the online network, so the bootstrap target moves with every update
# says: shallow|deep.?copy|copy\.copy|target.{0,60}(shar|alias|same (object|param|weight|tensor)|tied|identical|not (a )?separate|moves|follows|not frozen|is the online)|(shar|alias|tied)\w*.{0,60}target
# onset_step: 1
# fix: make the target network with copy.deepcopy
# mended: the target network is a deep copy, refreshed every 50 steps; Q values stay near the true values and the policy improves
import copy
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

GAMMA, STEPS, BATCH, SYNC = 0.99, 800, 128, 50
MOVES = torch.tensor([[0.1, 0.0], [-0.1, 0.0], [0.0, 0.1], [0.0, -0.1]])
GOAL = torch.tensor([0.7, 0.7])


class QNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, s):
        return self.net(s)


def env_step(s, a):
    s2 = (s + MOVES[a] + 0.02 * torch.randn_like(s)).clamp(-1, 1)
    done = ((s2 - GOAL).norm(dim=-1) < 0.2).float()
    return s2, done, done


class Replay:
    def __init__(self, n):
        self.s = torch.rand(n, 2) * 2 - 1
        self.a = torch.randint(0, 4, (n,))
        self.s2, self.r, self.d = env_step(self.s, self.a)
        self.i, self.n = 0, n

    def push(self, s, a, s2, r, d):
        idx = (self.i + torch.arange(len(s))) % self.n
        self.s[idx], self.a[idx], self.s2[idx], self.r[idx], self.d[idx] = s, a, s2, r, d
        self.i = int((self.i + len(s)) % self.n)

    def sample(self, k):
        i = torch.randint(0, self.n, (k,))
        return self.s[i], self.a[i], self.s2[i], self.r[i], self.d[i]


@torch.no_grad()
def greedy_return(net, n=200, horizon=40):
    s = torch.rand(n, 2) * 2 - 1
    alive, total = torch.ones(n), torch.zeros(n)
    for t in range(horizon):
        s, r, d = env_step(s, net(s).argmax(1))
        total += alive * r * GAMMA**t
        alive = alive * (1 - d)
    return total.mean().item()


def main():
    net = QNet()
    target = copy.deepcopy(net) if MENDED else copy.copy(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    buf = Replay(4000)
    s = torch.rand(16, 2) * 2 - 1
    t0 = time.time()
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            eps = max(0.1, 1 - step / 400)
            a = torch.where(torch.rand(16) < eps, torch.randint(0, 4, (16,)), net(s).argmax(1))
            s2, r, d = env_step(s, a)
            buf.push(s, a, s2, r, d)
            s = torch.where(d[:, None] > 0, torch.rand(16, 2) * 2 - 1, s2)
        bs, ba, bs2, br, bd = buf.sample(BATCH)
        with torch.no_grad():
            y = br + GAMMA * (1 - bd) * target(bs2).max(1).values
        q = net(bs).gather(1, ba[:, None]).squeeze(1)
        loss = F.mse_loss(q, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % SYNC == 0:
            target.load_state_dict(net.state_dict())
        if step == 1 or step % 50 == 0:
            print(f"step {step:4d} td loss {loss.item():.5f} mean q {q.mean().item():.4f}")
    print(f"greedy return {greedy_return(net):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
