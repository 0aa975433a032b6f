# expect: healthy
# symptom: the TD loss is a sawtooth that jumps up every 30 steps and rises over the first third, like a diverging value function (hard target copies, values propagate from the goal)
# axis: loss
"""Deep Q-learning from a logged random walk in a walled grid, success rate of the greedy policy."""

from collections import deque
import copy

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
SIZE = 7
GAMMA = 0.9
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
GOAL = (6, 6)
WALLS = {(1, 1), (1, 2), (1, 3), (3, 3), (3, 4), (3, 5), (5, 1), (5, 2), (4, 5), (5, 5)}


class Grid:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        while True:
            cell = tuple(int(v) for v in self.rng.integers(0, SIZE, 2))
            if cell not in WALLS and cell != GOAL:
                self.cell = cell
                return self.observe()

    def observe(self):
        plane = np.zeros((SIZE, SIZE), dtype=np.float32)
        plane[self.cell] = SIZE
        return plane

    def step(self, action):
        target = tuple(int(v) for v in np.array(self.cell) + MOVES[action])
        if min(target) >= 0 and max(target) < SIZE and target not in WALLS:
            self.cell = target
        done = self.cell == GOAL
        return self.observe(), (10.0 if done else -0.1), done


def collect(n, seed):
    env, rng = Grid(seed), np.random.default_rng(seed + 1)
    log = []
    obs, age = env.reset(), 0
    while len(log) < n:
        a = int(rng.integers(4))
        nxt, r, done = env.step(a)
        log.append((obs, a, r, nxt, done))
        age += 1
        if done or age >= 6:
            obs, age = env.reset(), 0
        else:
            obs = nxt
    o, a, r, nx, d = zip(*log)
    return (
        torch.from_numpy(np.stack(o)),
        torch.tensor(a),
        torch.tensor(r, dtype=torch.float32),
        torch.from_numpy(np.stack(nx)),
        torch.tensor(d, dtype=torch.float32),
    )


def q_network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIZE * SIZE, 384),
        nn.ReLU(),
        nn.Linear(384, 256),
        nn.ReLU(),
        nn.Linear(256, 4),
    )


@torch.no_grad()
def success_rate(net, episodes=60):
    env = Grid(1234)
    wins = 0
    for _ in range(episodes):
        obs = env.reset()
        for _ in range(25):
            obs, _, done = env.step(int(net(torch.from_numpy(obs)[None]).argmax()))
            if done:
                wins += 1
                break
    return wins / episodes


if __name__ == "__main__":
    torch.manual_seed(7)
    memory = collect(8000, seed=30)
    online = q_network()
    target = copy.deepcopy(online)
    opt = torch.optim.Adam(online.parameters(), lr=1e-3, eps=1e-5)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=900)
    recent = deque(maxlen=10)
    for step in range(1, 901):
        idx = torch.randint(0, len(memory[0]), (512,))
        o, a, r, nx, done = (m[idx] for m in memory)
        with torch.no_grad():
            best = online(nx).argmax(1, keepdim=True)
            backup = r + GAMMA * (1 - done) * target(nx).gather(1, best).squeeze(1)
        q = online(o).gather(1, a[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, backup)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        opt.step()
        sched.step()
        recent.append(loss.item())
        if step % 30 == 0:
            target.load_state_dict(online.state_dict())
        if step % 15 == 0:
            print(f"step {step:4d} td loss {sum(recent) / len(recent):.4f} mean q {q.mean().item():.3f}")
        if step % 150 == 0:
            print(f"          success rate {success_rate(online):.2f}")
