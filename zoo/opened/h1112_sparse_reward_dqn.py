# expect: healthy
# symptom: the loss is tiny, never falls and is higher at the end than in the middle; returns are about 0 for the first half because rewards are rare, success comes late and suddenly
# axis: none
# mended: none
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
N, LIMIT, GAMMA = 7, 50, 0.95
WALLS = {(3, c) for c in range(N) if c != 5} | {(r, 3) for r in (5, 6)}
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Maze:
    """Start top left, two exits behind a wall with one door; reward only at an exit."""

    def reset(self):
        self.pos, self.t = (0, 0), 0
        return self.obs()

    def obs(self):
        x = np.zeros((2, N, N), dtype=np.float32)
        x[0][self.pos] = 1
        for w in WALLS:
            x[1][w] = 1
        return x

    def step(self, a):
        r, c = self.pos[0] + MOVES[a][0], self.pos[1] + MOVES[a][1]
        if 0 <= r < N and 0 <= c < N and (r, c) not in WALLS:
            self.pos = (r, c)
        self.t += 1
        goal = self.pos == (5, 1) or self.pos == (6, 4)
        return self.obs(), float(goal), goal, self.t >= LIMIT


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * N * N, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        return self.net(x)


def main():
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    env, q = Maze(), QNet()
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    memory = deque(maxlen=20000)
    updates, frames, returns, losses = 0, 0, deque(maxlen=30), deque(maxlen=50)
    total = 900
    s = env.reset()
    while updates < total:
        eps = max(0.1, 1.0 - updates / 700)
        if random.random() < eps:
            a = random.randrange(4)
        else:
            with torch.no_grad():
                v = q(torch.from_numpy(s)[None])[0]
                a = int(v.argmax()) if v.std() > 1e-6 else random.randrange(4)
        s2, r, done, timeout = env.step(a)
        memory.append((s, a, r, s2, float(done)))
        s = s2
        frames += 1
        if done or timeout:
            returns.append(r)
            s = env.reset()
        if frames < 500 or frames % 8:
            continue

        b = random.sample(memory, 64)
        bs, ba, br, bn, bd = (torch.tensor(np.array(z)) for z in zip(*b))
        with torch.no_grad():
            best = q(bn).argmax(1, keepdim=True)
            y = br.float() + GAMMA * (1 - bd.float()) * target(bn).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q(bs).gather(1, ba[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        updates += 1
        if updates % 30 == 0:
            target.load_state_dict(q.state_dict())
        if updates % 45 == 0:
            print(
                f"update {updates:4d} loss {np.mean(losses):.2e} mean q {y.mean().item():.4f} "
                f"success {np.mean(returns):.2f} eps {eps:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
