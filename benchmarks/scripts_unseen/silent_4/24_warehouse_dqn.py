# expect: sick
# cause: The target network is copied only when the step counter, which is set to zero at each new episode, reaches 500, so it is never updated and the values beyond one step are random.
import random
from collections import deque

import torch
import torch.nn as nn

random.seed(6)
torch.manual_seed(6)
SIZE, GOAL, MAX_T, GAMMA = 6, (5, 5), 40, 0.95
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
WALLS = {(1, 1), (1, 2), (1, 3), (3, 2), (3, 3), (3, 4), (4, 1)}


class Warehouse:
    def reset(self):
        while True:
            self.pos = (random.randrange(SIZE), random.randrange(SIZE))
            if self.pos not in WALLS and self.pos != GOAL:
                break
        self.t = 0
        return self.obs()

    def obs(self):
        v = torch.zeros(SIZE * SIZE)
        v[self.pos[0] * SIZE + self.pos[1]] = 1.0
        return v

    def step(self, a):
        self.t += 1
        new = (self.pos[0] + MOVES[a][0], self.pos[1] + MOVES[a][1])
        if 0 <= new[0] < SIZE and 0 <= new[1] < SIZE and new not in WALLS:
            self.pos = new
        done = self.pos == GOAL
        return self.obs(), (1.0 if done else -0.02), done, self.t >= MAX_T


def make_net():
    return nn.Sequential(nn.Linear(SIZE * SIZE, 128), nn.ReLU(), nn.Linear(128, 4))


env, q, target = Warehouse(), make_net(), make_net()
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=3e-3)
memory = deque(maxlen=5000)
learn_steps, episode = 0, 0
while learn_steps < 500:
    s, over, steps = env.reset(), False, 0
    while not over and learn_steps < 500:
        eps = max(0.1, 1 - learn_steps / 300)
        a = random.randrange(4) if random.random() < eps else q(s).argmax().item()
        s2, r, done, cut = env.step(a)
        memory.append((s, a, r, s2, done))
        s, over = s2, done or cut
        steps += 1
        if len(memory) > 600 and steps % 2 == 0:
            b = random.sample(memory, 128)
            S, S2 = torch.stack([e[0] for e in b]), torch.stack([e[3] for e in b])
            A, R, D = (torch.tensor([e[i] for e in b]) for i in (1, 2, 4))
            with torch.no_grad():
                y = R + GAMMA * target(S2).max(1).values * (~D)
            loss = nn.functional.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            learn_steps += 1
            if learn_steps % 100 == 0:
                print(f"updates {learn_steps} episode {episode} td loss {loss.item():.5f}")
        if steps % 500 == 0:
            target.load_state_dict(q.state_dict())
    episode += 1

solved, returns = 0, 0.0
for _ in range(100):
    s, over = env.reset(), False
    while not over:
        with torch.no_grad():
            s, r, done, cut = env.step(q(s).argmax().item())
        returns += r / 100
        over = done or cut
    solved += done
print(f"greedy policy reaches the goal in {solved} of 100 starts, mean return {returns:.3f}")
