# expect: healthy
# symptom: rewards are rare; the TD loss falls at first, then RISES to three times that value and stays there for 300 updates while the Q values climb from 0.05 to 0.9; the success rate even dips as exploration goes down, before it reaches 1
# axis: none
# mended: none
"""Double DQN on a corridor world whose only reward waits at the far end."""

import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(4)
random.seed(4)
np.random.seed(4)


class Corridor:
    """2 x L grid; +1 at the far right, nothing anywhere else; the episode is cut after a time limit."""

    L, LIMIT = 10, 40

    def reset(self):
        self.x, self.y, self.t = 0, np.random.randint(2), 0
        return self.obs()

    def obs(self):
        v = np.zeros(self.L + 2, dtype=np.float32)
        v[self.x] = 1
        v[self.L + self.y] = 1
        return v

    def step(self, a):
        self.t += 1
        if a == 0:
            self.x = max(0, self.x - 1)
        elif a == 1 and not (self.x % 3 == 2 and self.y == 0):  # doors are only in the upper lane
            self.x += 1
        elif a == 2:
            self.y = 1 - self.y
        goal = self.x == self.L - 1
        return self.obs(), float(goal), goal, self.t >= self.LIMIT


class Dueling(nn.Module):
    def __init__(self, n_obs, n_act=3, h=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.v, self.a = nn.Linear(h, 1), nn.Linear(h, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.a(h)
        return self.v(h) + a - a.mean(-1, keepdim=True)


class Replay:
    def __init__(self, size=20000):
        self.size, self.data, self.at = size, [], 0

    def push(self, item):
        if len(self.data) < self.size:
            self.data.append(item)
        else:
            self.data[self.at] = item
            self.at = (self.at + 1) % self.size

    def sample(self, n):
        s, a, r, s2, end = zip(*random.sample(self.data, n))
        return (
            torch.tensor(np.stack(s)),
            torch.tensor(a),
            torch.tensor(r),
            torch.tensor(np.stack(s2)),
            torch.tensor(end, dtype=torch.float32),
        )


env, memory = Corridor(), Replay()
online = Dueling(env.L + 2)
target = copy.deepcopy(online).requires_grad_(False)
opt = torch.optim.Adam(online.parameters(), lr=1e-3)
GAMMA, SYNC, UPDATES, ENV_STEPS = 0.97, 40, 800, 12
obs, wins, episodes, recent, td_log = env.reset(), 0, 0, [], []

for update in range(UPDATES):
    eps = max(0.1, 1.0 - update / 500)
    for _ in range(ENV_STEPS):
        if random.random() < eps:
            a = random.randrange(3)
        else:
            with torch.no_grad():
                a = online(torch.from_numpy(obs)).argmax().item()
        nxt, r, goal, cut = env.step(a)
        memory.push((obs, a, r, nxt, goal))
        obs = nxt
        if goal or cut:
            recent.append(goal)
            obs = env.reset()
    if len(memory.data) < 64:
        continue
    s, a, r, s2, end = memory.sample(64)
    with torch.no_grad():
        best = online(s2).argmax(1, keepdim=True)
        y = r + GAMMA * (1 - end) * target(s2).gather(1, best).squeeze(1)
    q = online(s).gather(1, a[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    opt.step()
    if update % SYNC == 0:
        target.load_state_dict(online.state_dict())
    td_log.append(loss.item())
    if update % 40 == 0:
        print(
            f"update {update:3d} td_loss {np.mean(td_log[-40:]):.6f} mean_q {q.mean().item():.3f} "
            f"eps {eps:.2f} success {np.mean(recent[-30:]) if recent else 0:.2f}"
        )

wins = 0
for _ in range(20):
    obs, over = env.reset(), False
    while not over:
        with torch.no_grad():
            obs, r, goal, cut = env.step(online(torch.from_numpy(obs)).argmax().item())
        over = goal or cut
    wins += goal
print(f"greedy success {wins}/20")
