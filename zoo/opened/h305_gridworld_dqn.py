# expect: healthy
# symptom: the temporal-difference loss rises for the first third of the run; resembles divergence
# axis: loss
# cause: none: values and their errors grow as the agent first finds rewards; the returns rise
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(105)
rng = random.Random(105)
SIDE, GAMMA = 6, 0.97
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
WALLS = {(1, 1), (1, 2), (1, 3), (3, 2), (3, 3), (3, 4), (4, 1)}


class Grid:
    def reset(self):
        self.pos, self.t = (0, 0), 0
        return self.pos

    def step(self, a):
        self.t += 1
        y, x = self.pos[0] + MOVES[a][0], self.pos[1] + MOVES[a][1]
        if 0 <= y < SIDE and 0 <= x < SIDE and (y, x) not in WALLS:
            self.pos = (y, x)
        done = self.pos == (SIDE - 1, SIDE - 1)
        return self.pos, (10.0 if done else -0.05), done, done or self.t >= 60


def encode(states):
    v = torch.zeros(len(states), 2 * SIDE)
    for i, (y, x) in enumerate(states):
        v[i, y] = 1
        v[i, SIDE + x] = 1
    return v


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(2 * SIDE, 64), nn.ReLU(), nn.Linear(64, 4))
        self.target = copy.deepcopy(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.memory = deque(maxlen=5000)

    def act(self, s, eps):
        if rng.random() < eps:
            return rng.randrange(4)
        with torch.no_grad():
            return int(self.net(encode([s])).argmax())

    def learn(self, n=48):
        s, a, r, s2, done = zip(*rng.sample(self.memory, n))
        q = self.net(encode(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.net(encode(s2)).argmax(1, keepdim=True)
            nxt = self.target(encode(s2)).gather(1, best).squeeze(1)
            goal = torch.tensor(r) + GAMMA * nxt * (1 - torch.tensor(done, dtype=torch.float32))
        loss = F.mse_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.opt.step()
        return loss.item()


def main():
    env, agent = Grid(), Agent()
    s, ret, returns, updates, frames = env.reset(), 0.0, deque([0.0], maxlen=20), 0, 0
    loss = smooth = 0.0
    while updates < 650:
        a = agent.act(s, eps=max(0.05, 1 - updates / 400))
        s2, r, done, over = env.step(a)
        agent.memory.append((s, a, r, s2, float(done)))
        s, ret, frames = s2, ret + r, frames + 1
        if over:
            returns.append(ret)
            s, ret = env.reset(), 0.0
        if frames > 300 and frames % 4 == 0:
            loss = agent.learn()
            updates += 1
            smooth += 0.05 * (loss - smooth)
            if updates % 30 == 0:
                agent.target.load_state_dict(agent.net.state_dict())
                print(f"update {updates} td loss {smooth:.4f} return {sum(returns) / len(returns):.2f}")


if __name__ == "__main__":
    main()
