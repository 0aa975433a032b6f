# expect: healthy
# symptom: the temporal-difference loss climbs for more than five hundred updates while the Q values keep growing, which resembles diverging Q values
# axis: harness
"""Double Q-learning with a replay ring on a warehouse grid: the robot fetches a parcel and brings it to the dock."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

SIZE = 5
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
SHELVES = {(1, 1), (1, 2), (3, 3)}
DOCK = (0, 4)
LIMIT = 50
N_INPUT = 3 * SIZE * SIZE + 4


class Warehouse:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.free = [(r, c) for r in range(SIZE) for c in range(SIZE) if (r, c) not in SHELVES and (r, c) != DOCK]

    def reset(self):
        a, b = self.rng.choice(len(self.free), 2, replace=False)
        self.robot, self.parcel = self.free[a], self.free[b]
        self.loaded, self.clock = False, 0
        return self.encode()

    def encode(self):
        planes = np.zeros((3, SIZE, SIZE), np.float32)
        planes[0][self.robot] = 1
        if not self.loaded:
            planes[1][self.parcel] = 1
        planes[2][DOCK] = 1.0 if self.loaded else 0.0
        goal = DOCK if self.loaded else self.parcel
        lead = np.array([goal[0] - self.robot[0], goal[1] - self.robot[1]], np.float32) / SIZE
        return np.concatenate([planes.reshape(-1), lead, np.sign(lead)])

    def step(self, action):
        self.clock += 1
        r, c = np.array(self.robot) + MOVES[action]
        if 0 <= r < SIZE and 0 <= c < SIZE and (r, c) not in SHELVES:
            self.robot = (int(r), int(c))
        reward, over = -0.05, False
        if not self.loaded and self.robot == self.parcel:
            self.loaded, reward = True, 2.0
        elif self.loaded and self.robot == DOCK:
            reward, over = 5.0, True
        return self.encode(), reward, over, over or self.clock >= LIMIT


class Ring:
    def __init__(self, size, width):
        self.s = np.zeros((size, width), np.float32)
        self.s2 = np.zeros((size, width), np.float32)
        self.a = np.zeros(size, np.int64)
        self.r = np.zeros(size, np.float32)
        self.end = np.zeros(size, np.float32)
        self.size, self.count = size, 0

    def add(self, s, a, r, s2, end):
        i = self.count % self.size
        self.s[i], self.a[i], self.r[i], self.s2[i], self.end[i] = s, a, r, s2, end
        self.count += 1

    def sample(self, n, rng):
        i = rng.integers(0, min(self.count, self.size), n)
        return [torch.from_numpy(x[i]) for x in (self.s, self.a, self.r, self.s2, self.end)]


class Dueling(nn.Module):
    def __init__(self, n_in, width=224):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.edge = nn.Linear(width, 1), nn.Linear(width, 4)

    def forward(self, s):
        h = self.trunk(s)
        edge = self.edge(h)
        return self.value(h) + edge - edge.mean(1, keepdim=True)


def evaluate(net, episodes=40):
    env, total, wins = Warehouse(777), 0.0, 0
    for _ in range(episodes):
        s, stop = env.reset(), False
        while not stop:
            with torch.no_grad():
                a = int(net(torch.from_numpy(s)[None]).argmax())
            s, r, over, stop = env.step(a)
            total += r
            wins += over
    return total / episodes, wins / episodes


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    env, ring = Warehouse(5), Ring(12000, N_INPUT)
    net, target = Dueling(N_INPUT), Dueling(N_INPUT)
    target.load_state_dict(net.state_dict())
    opt = torch.optim.RMSprop(net.parameters(), lr=7e-4, alpha=0.95, eps=1e-4)
    s, window = env.reset(), []
    for update in range(1, 901):
        eps = max(0.08, 1.0 - update / 500)
        for _ in range(24):
            if rng.random() < eps:
                a = int(rng.integers(4))
            else:
                with torch.no_grad():
                    a = int(net(torch.from_numpy(s)[None]).argmax())
            s2, r, over, stop = env.step(a)
            ring.add(s, a, r, s2, float(over))
            s = env.reset() if stop else s2
        bs, ba, br, bs2, bend = ring.sample(192, rng)
        with torch.no_grad():
            best = net(bs2).argmax(1, keepdim=True)
            goal = br + 0.96 * (1 - bend) * target(bs2).gather(1, best).squeeze(1)
        q = net(bs).gather(1, ba[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        window.append(loss.item())
        if update % 40 == 0:
            target.load_state_dict(net.state_dict())
        if update % 30 == 0:
            print(f"update {update:3d} td {np.mean(window[-30:]):.4f} mean q {q.mean().item():.2f} eps {eps:.2f}")
        if update % 150 == 0:
            ret, wins = evaluate(net)
            print(f"    greedy return {ret:.2f}  delivered {wins:.2f}")


if __name__ == "__main__":
    main()
