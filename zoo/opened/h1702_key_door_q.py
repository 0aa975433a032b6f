# expect: healthy
# symptom: reward is zero for long and the loss almost nothing; then the loss rises by orders of magnitude and keeps at it while the returns go up
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(7)
np.random.seed(7)

N = 6  # board edge
ENVS = 16
HORIZON = 50
GAMMA = 0.97
STEPS = 800
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


class KeyDoor:
    """Fetch the key in one corner, then reach the door in the other; 10 points for the door, nothing else."""

    def __init__(self, n_envs, rng):
        self.n, self.rng = n_envs, rng
        self.pos = np.zeros((n_envs, 2), dtype=int)
        self.key = np.zeros(n_envs, dtype=bool)
        self.age = np.zeros(n_envs, dtype=int)
        self.reset(np.arange(n_envs))

    def reset(self, which):
        self.pos[which] = self.rng.integers(1, N - 1, size=(len(which), 2))
        self.key[which] = False
        self.age[which] = 0

    def obs(self):
        out = np.zeros((self.n, 2 * N + 1), dtype=np.float32)
        rows = np.arange(self.n)
        out[rows, self.pos[:, 0]] = 1
        out[rows, N + self.pos[:, 1]] = 1
        out[:, -1] = self.key
        return out

    def step(self, actions):
        self.pos = np.clip(self.pos + MOVES[actions], 0, N - 1)
        self.age += 1
        self.key |= (self.pos == 0).all(axis=1)
        won = self.key & (self.pos == N - 1).all(axis=1)
        reward = 10.0 * won.astype(np.float32)
        timeout = (self.age >= HORIZON) & ~won
        nxt = self.obs()
        over = np.flatnonzero(won | timeout)
        if len(over):
            self.reset(over)
        return nxt, reward, won.astype(np.float32), won | timeout


class QNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * N + 1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        return self.net(x)


class Replay:
    def __init__(self, size):
        self.size, self.items = size, []

    def add(self, *cols):
        self.items.extend(zip(*cols))
        self.items = self.items[-self.size :]

    def sample(self, n, rng):
        picks = [self.items[i] for i in rng.integers(0, len(self.items), size=n)]
        s, a, r, s2, done = (np.stack(c) for c in zip(*picks))
        return (
            torch.from_numpy(s),
            torch.from_numpy(a),
            torch.from_numpy(r),
            torch.from_numpy(s2),
            torch.from_numpy(done),
        )


def main():
    rng = np.random.default_rng(3)
    env, replay = KeyDoor(ENVS, rng), Replay(20000)
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=2e-3)
    obs = env.obs()
    returns, ret = [], np.zeros(ENVS)
    t0 = time.time()
    for step in range(STEPS):
        eps = max(0.08, 1.0 - step / 450)
        for _ in range(4):
            with torch.no_grad():
                scores = q(torch.from_numpy(obs)) + 1e-6 * torch.rand(ENVS, 4)
            act = scores.argmax(1).numpy()
            act = np.where(rng.random(ENVS) < eps, rng.integers(0, 4, size=ENVS), act)
            nxt, rew, terminal, over = env.step(act)
            replay.add(obs, act, rew, nxt, terminal)
            ret += rew
            for i in np.flatnonzero(over):
                returns.append(ret[i])
                ret[i] = 0
            obs = env.obs()
        s, a, r, s2, done = replay.sample(128, rng)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            goal = r + GAMMA * (1 - done) * target(s2).gather(1, best).squeeze(1)
        pred = q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(pred, goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        if step % 15 == 14:
            target.load_state_dict(q.state_dict())
        if step % 25 == 0:
            recent = np.mean(returns[-60:]) if returns else 0.0
            print(
                f"step {step} loss {loss.item():.6f} return {recent:.2f} q {pred.mean().item():.3f} eps {eps:.2f} t {time.time() - t0:.1f}"
            )


if __name__ == "__main__":
    main()
