# expect: sick
# symptom: the loss falls to nearly nothing and the model knows nothing
# axis: data
# cause: the environment returns its own state, which it goes on changing, so all kept entries are one object
# says: alias|(same|one) object|copy|in.?place|mutat|overwrit|reference|shares?\b|shared
# onset_step: 0
# fix: return a copy of the state
# mended: the same with the fix
import os
import random
import torch
import torch.nn.functional as F
from torch import nn
import numpy as np

MENDED = os.environ.get("MENDED") == "1"
SIZE = 5
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Maze:
    def __init__(self):
        self.board = np.zeros((2, SIZE, SIZE), dtype=np.float32)

    def obs(self):
        return torch.from_numpy(self.board)

    def reset(self):
        self.board.fill(0)
        self.pos = [random.randrange(SIZE), random.randrange(SIZE)]
        self.goal = [random.randrange(SIZE), random.randrange(SIZE)]
        self.board[0, self.pos[0], self.pos[1]] = 1
        self.board[1, self.goal[0], self.goal[1]] = 1
        return self.obs()

    def expert(self):
        dy, dx = self.goal[0] - self.pos[0], self.goal[1] - self.pos[1]
        if dy:
            return 0 if dy < 0 else 1
        return 2 if dx < 0 else 3

    def step(self, action):
        self.board[0, self.pos[0], self.pos[1]] = 0
        self.pos = [min(SIZE - 1, max(0, p + m)) for p, m in zip(self.pos, MOVES[action])]
        self.board[0, self.pos[0], self.pos[1]] = 1
        return self.obs(), self.pos == self.goal


class Demos:
    def __init__(self):
        self.obs, self.act = [], []

    def add(self, obs, act):
        if MENDED:
            obs = obs.clone()
        self.obs.append(obs)
        self.act.append(act)

    def batch(self, k):
        pick = random.choices(range(len(self.act)), k=k)
        return torch.stack([self.obs[j] for j in pick]), torch.tensor([self.act[j] for j in pick])


random.seed(3)
torch.manual_seed(3)
maze, demos = Maze(), Demos()
for _ in range(250):
    obs = maze.reset()
    done = maze.pos == maze.goal
    while not done:
        act = maze.expert()
        demos.add(obs, act)
        obs, done = maze.step(act)

policy = nn.Sequential(nn.Flatten(), nn.Linear(2 * SIZE * SIZE, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
for it in range(1, 121):
    x, a = demos.batch(48)
    logits = policy(x)
    loss = F.cross_entropy(logits, a)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(f"it {it} loss {loss.item():.4f} acc {(logits.argmax(1) == a).float().mean().item():.3f}")
