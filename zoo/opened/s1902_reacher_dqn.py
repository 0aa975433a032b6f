# expect: sick
# symptom: TD loss shrinks to a small value but the agent's return and success rate stay at the level of random play
# axis: data
# cause: the environment mutates its state array in place and returns that very array, so the replay buffer holds references to one object per episode and every stored state and next state is the episode's last state
# says: \balias\w*|in-?place|same (array|object|buffer|memory|reference)|\breferenc\w*|not cop(y|ied)|without (a )?cop|missing (a )?cop|no cop|mutat\w*|overwrit\w*|(state|observation).{0,60}next.?(state|obs\w*).{0,60}(identical|same|equal)
# onset_step: 0
# fix: return a copy of the state from reset and step
# mended: yes
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32) * 0.12


class Reacher:
    """Move a point to a goal inside the unit square."""

    n_actions = len(MOVES)
    horizon = 25

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def observe(self):
        return self.state.copy() if MENDED else self.state

    def reset(self):
        self.state = self.rng.uniform(-1, 1, size=4).astype(np.float32)
        self.t = 0
        return self.observe()

    def step(self, action):
        self.state[:2] = np.clip(self.state[:2] + MOVES[action], -1, 1)
        self.t += 1
        dist = float(np.linalg.norm(self.state[:2] - self.state[2:]))
        hit = dist < 0.15
        reward = 1.0 if hit else -0.1 * dist
        return self.observe(), reward, hit, hit or self.t >= self.horizon


class Replay:
    def __init__(self, size):
        self.items = deque(maxlen=size)

    def push(self, *item):
        self.items.append(item)

    def sample(self, n):
        s, a, r, s2, d = zip(*random.sample(self.items, n))
        return (
            torch.from_numpy(np.stack(s)),
            torch.tensor(a),
            torch.tensor(r),
            torch.from_numpy(np.stack(s2)),
            torch.tensor(d, dtype=torch.float32),
        )


class QNet(nn.Module):
    def __init__(self, n_actions, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.adv = nn.Linear(width, n_actions)

    def forward(self, s):
        h = self.body(s)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


def act(q, s, eps):
    if random.random() < eps:
        return random.randrange(Reacher.n_actions)
    with torch.no_grad():
        return int(q(torch.from_numpy(s)[None]).argmax())


def evaluate(q, episodes=40):
    env = Reacher(seed=777)
    wins, total = 0, 0.0
    for _ in range(episodes):
        s, done = env.reset(), False
        while not done:
            s, r, hit, done = env.step(act(q, s, 0.0))
            total += r
        wins += hit
    return total / episodes, wins / episodes


def main(steps=900, batch=128, gamma=0.95, per_update=8):
    random.seed(4)
    torch.manual_seed(4)
    env = Reacher(seed=4)
    q, target = QNet(env.n_actions), QNet(env.n_actions)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = Replay(12000)

    s = env.reset()
    for step in range(-100, steps):
        eps = max(0.1, 1.0 - max(step, 0) / 350)
        for _ in range(per_update):
            a = act(q, s, eps)
            s2, r, hit, done = env.step(a)
            replay.push(s, a, r, s2, hit)
            s = env.reset() if done else s2
        if step < 0:
            continue  # fill the buffer first

        bs, ba, br, bs2, bd = replay.sample(batch)
        with torch.no_grad():
            best = q(bs2).argmax(-1, keepdim=True)
            backup = br + gamma * (1 - bd) * target(bs2).gather(1, best).squeeze(1)
        pred = q(bs).gather(1, ba[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(pred, backup)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        if step % 50 == 0:
            target.load_state_dict(q.state_dict())
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} q {pred.mean().item():.3f} eps {eps:.2f}")
        if step % 150 == 149:
            ret, win = evaluate(q)
            print(f"step {step} eval_return {ret:.3f} success {win:.2f}")


if __name__ == "__main__":
    main()
