# expect: healthy
# symptom: resembles divergence: the TD loss rises from near zero for hundreds of steps and jumps at every target update
# axis: loss
# cause: healthy: in DQN the loss grows because the Q-values grow from zero towards the true returns while rewards are first being found; the return rises to the optimum and the Q-values stay at the true scale
# says: none
# onset_step: none
# fix: none
# mended: none
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA = 0.9


class Rooms:
    """5 x 5 grid with a wall and one door; +10 at the goal, -0.1 a move, 40 moves at most."""

    MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))

    def __init__(self, rng):
        self.rng = rng
        self.wall = {(r, 2) for r in range(5) if r != 1}
        self.free = [(r, c) for r in range(5) for c in range(2)]
        self.goal = (3, 4)

    def reset(self):
        self.pos = self.free[self.rng.integers(len(self.free))]
        self.t = 0
        return self.observe()

    def observe(self):
        o = np.zeros(10, np.float32)
        o[self.pos[0]] = 1
        o[5 + self.pos[1]] = 1
        return o

    def step(self, a):
        dr, dc = self.MOVES[a]
        new = (min(max(self.pos[0] + dr, 0), 4), min(max(self.pos[1] + dc, 0), 4))
        if new not in self.wall:
            self.pos = new
        self.t += 1
        reached = self.pos == self.goal
        return self.observe(), 10.0 if reached else -0.1, reached, self.t >= 40


class Replay:
    def __init__(self, size):
        self.data = deque(maxlen=size)

    def add(self, *item):
        self.data.append(item)

    def sample(self, n):
        o, a, r, o2, end = zip(*random.sample(self.data, n))
        return (
            torch.from_numpy(np.stack(o)),
            torch.tensor(a),
            torch.tensor(r, dtype=torch.float32),
            torch.from_numpy(np.stack(o2)),
            torch.tensor(end, dtype=torch.float32),
        )


def td_loss(q, target, batch):
    o, a, r, o2, end = batch
    with torch.no_grad():
        best = q(o2).argmax(1, keepdim=True)
        y = r + GAMMA * (1 - end) * target(o2).gather(1, best).squeeze(1)
    return F.mse_loss(q(o).gather(1, a[:, None]).squeeze(1), y)


def greedy_return(env, q, episodes=20):
    total = 0.0
    for _ in range(episodes):
        o, over = env.reset(), False
        while not over:
            with torch.no_grad():
                a = q(torch.from_numpy(o)).argmax().item()
            o, r, end, cut = env.step(a)
            total += r
            over = end or cut
    return total / episodes


def main():
    torch.set_num_threads(1)
    random.seed(6)
    torch.manual_seed(6)
    env, probe = Rooms(np.random.default_rng(6)), Rooms(np.random.default_rng(60))
    q = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 1.0 if k < 400 else max(0.1, 1 - (k - 400) / 300))
    memory = Replay(6000)
    o = env.reset()
    updates, recent = 0, deque(maxlen=40)
    for t in range(1, 4601):
        eps = max(0.15, 1.0 - t / 4000)
        if random.random() < eps:
            a = random.randrange(4)
        else:
            with torch.no_grad():
                a = q(torch.from_numpy(o)).argmax().item()
        o2, r, end, cut = env.step(a)
        memory.add(o, a, r, o2, float(end))
        o = env.reset() if end or cut else o2
        if t >= 600 and t % 5 == 0:
            batch = memory.sample(64)
            loss = td_loss(q, target, batch)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q.parameters(), 10.0)
            opt.step()
            decay.step()
            updates += 1
            recent.append(loss.item())
            if updates % 40 == 0:
                target.load_state_dict(q.state_dict())
                with torch.no_grad():
                    mean_q = q(batch[0]).max(1).values.mean().item()
                print(
                    f"update {updates:4d} td loss {np.mean(recent):.4f} mean max Q {mean_q:6.2f} "
                    f"greedy return {greedy_return(probe, q):6.2f}"
                )


if __name__ == "__main__":
    main()
