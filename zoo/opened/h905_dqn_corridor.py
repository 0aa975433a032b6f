# expect: healthy
# symptom: the TD loss and the Q values climb for a long time (resembles a diverging DQN)
# axis: harness
# cause: healthy: the Q values grow from zero to the true discounted returns and the TD error grows with their scale; the greedy return improves and everything levels off
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

torch.set_num_threads(1)
GAMMA = 0.97


class Corridor:
    """Slippery stepping stones, the forward button alternates; a coin (+1) on every third tile, a prize (+10) at the end."""

    def __init__(self, length=10, horizon=40):
        self.length, self.horizon = length, horizon

    def reset(self):
        self.x, self.t = 0, 0
        self.coins = np.array([1.0 if i % 3 == 2 else 0.0 for i in range(self.length)], np.float32)
        return self.obs()

    def obs(self):
        o = np.zeros(2 * self.length, np.float32)
        o[self.x] = 1.0
        o[self.length :] = self.coins
        return o

    def step(self, action):
        move = 1 if action == self.x % 2 else -1
        if random.random() < 0.1:
            move = -move
        self.x = max(0, min(self.length - 1, self.x + move))
        self.t += 1
        reward = float(self.coins[self.x])
        self.coins[self.x] = 0.0
        end = self.x == self.length - 1
        if end:
            reward += 10.0
        return self.obs(), reward, end, end or self.t >= self.horizon


def q_net(env):
    return nn.Sequential(nn.Linear(2 * env.length, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def greedy_return(q, n=10):
    env, total = Corridor(), 0.0
    for _ in range(n):
        o, over = env.reset(), False
        while not over:
            with torch.no_grad():
                a = int(q(torch.from_numpy(o)).argmax())
            o, r, _, over = env.step(a)
            total += r
    return total / n


def main():
    random.seed(4)
    np.random.seed(4)
    torch.manual_seed(4)
    env = Corridor()
    q = q_net(env)
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = deque(maxlen=5000)
    obs = env.reset()
    updates = 0
    print(f"greedy return before training {greedy_return(q):.2f}")
    for t in range(3200):
        eps = max(0.05, 1.0 - t / 2000)
        if random.random() < eps:
            a = random.randrange(2)
        else:
            with torch.no_grad():
                a = int(q(torch.from_numpy(obs)).argmax())
        nxt, r, terminal, over = env.step(a)
        replay.append((obs, a, r, nxt, float(terminal)))
        obs = env.reset() if over else nxt
        if t < 200 or t % 4:
            continue
        o, act, rew, n_o, done = zip(*random.sample(replay, 64))
        o, n_o = torch.from_numpy(np.stack(o)), torch.from_numpy(np.stack(n_o))
        act, rew, done = torch.tensor(act), torch.tensor(rew), torch.tensor(done)
        with torch.no_grad():
            best = q(n_o).argmax(1, keepdim=True)
            y = rew + GAMMA * (1 - done) * target(n_o).gather(1, best).squeeze(1)
        pred = q(o).gather(1, act[:, None]).squeeze(1)
        loss = F.mse_loss(pred, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        updates += 1
        if updates % 40 == 0:
            target.load_state_dict(q.state_dict())
        if updates % 75 == 0:
            print(
                f"update {updates} td_loss {loss.item():.3f} mean_q {pred.mean().item():.2f} "
                f"eps {eps:.2f} greedy_return {greedy_return(q):.2f}"
            )
    print(f"final greedy return {greedy_return(q, 30):.2f}")


if __name__ == "__main__":
    main()
