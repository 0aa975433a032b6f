# expect: sick
# symptom: DQN on a small point-reaching task does not get better than chance; TD loss stays finite and looks plausible
# axis: data
# cause: the environment updates its state array in place and returns it without copying, so every transition in the replay buffer references the same array (state equals next_state, the last state of the episode)
# says: in[- ]?place|alias\w*|same (array|object|buffer|memory|reference|tensor)|(without|no|missing|not|never)( a| being| the)? (copy|copied|copying|clon)|by reference|references?( to)? the|shared (array|memory|reference|buffer)|(state|observation|obs)s? (and|equals?|is|are|==)\W+(\w+\W+){0,3}(next|identical|equal)
# onset_step: 0
# fix: return self.state.copy() from the environment (or copy when pushing into the replay buffer)
# mended: yes
import copy
import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
random.seed(4)
np.random.seed(4)
torch.manual_seed(4)
torch.set_num_threads(1)

MOVES = np.array([[0, 0], [0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1]], dtype=np.float32)


class PointReach:
    """Move a point on the unit square to a goal: observation is (x, y, gx, gy)."""

    horizon = 25

    def _obs(self):
        return self.state.copy() if MENDED else self.state

    def reset(self):
        self.state = np.random.uniform(-1, 1, size=4).astype(np.float32)
        self.t = 0
        return self._obs()

    def step(self, action):
        self.state[:2] += MOVES[action] + np.random.normal(0, 0.01, 2).astype(np.float32)
        np.clip(self.state, -1, 1, out=self.state)
        self.t += 1
        dist = self._distance()
        done = dist < 0.12
        reward = -dist
        return self._obs(), float(reward), done, self.t >= self.horizon

    def _distance(self):
        return float(np.linalg.norm(self.state[:2] - self.state[2:]))


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, len(MOVES))
        )

    def forward(self, s):
        return self.net(s)


class Replay:
    def __init__(self, size):
        self.data = deque(maxlen=size)

    def push(self, *transition):
        self.data.append(transition)

    def sample(self, n):
        s, a, r, s2, d = zip(*random.sample(self.data, n))
        return (
            torch.from_numpy(np.stack(s)),
            torch.tensor(a),
            torch.tensor(r),
            torch.from_numpy(np.stack(s2)),
            torch.tensor(d, dtype=torch.float32),
        )


def act(net, obs, eps):
    if random.random() < eps:
        return random.randrange(len(MOVES))
    with torch.no_grad():
        return net(torch.from_numpy(obs)[None]).argmax(1).item()


def evaluate(net, episodes=20):
    env, total, solved = PointReach(), 0.0, 0
    for _ in range(episodes):
        obs, over = env.reset(), False
        while not over:
            obs, r, done, timeout = env.step(act(net, obs, 0.0))
            total += r
            solved += int(done)
            over = done or timeout
    return total / episodes, solved / episodes


def main(updates=800, per_update=5, gamma=0.9, batch=128, tau=0.02):
    env, q = PointReach(), QNet()
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = Replay(10_000)
    obs, ep_ret, recent = env.reset(), 0.0, deque(maxlen=20)
    for step in range(-60, updates):
        eps = max(0.1, 1.0 - max(step, 0) / 400)
        for _ in range(per_update):
            a = act(q, obs, eps)
            nxt, r, done, timeout = env.step(a)
            replay.push(obs, a, r, nxt, done)
            ep_ret += r
            obs = nxt
            if done or timeout:
                recent.append(ep_ret)
                obs, ep_ret = env.reset(), 0.0
        if step < 0:
            continue
        s, a, r, s2, d = replay.sample(batch)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            y = r + gamma * (1 - d) * target(s2).gather(1, best).squeeze(1)
        pred = q(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(pred, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        with torch.no_grad():
            for tp, p in zip(target.parameters(), q.parameters()):
                tp.lerp_(p, tau)
        if step % 40 == 0:
            print(
                f"update {step} loss {loss.item():.4f} eps {eps:.2f} mean return {np.mean(recent):.3f} q {pred.mean():.3f}"
            )
        if (step + 1) % 200 == 0:
            ret, ok = evaluate(q)
            print(f"  greedy return {ret:.3f} solved {ok:.2f}")


if __name__ == "__main__":
    main()
