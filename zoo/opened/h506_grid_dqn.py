# expect: healthy
# symptom: resembles a divergence: the TD loss is near zero at first and rises over a long part of the run, and the Q values grow
# axis: loss
# cause: in Q-learning the targets grow from zero as reward propagates backwards, so the TD loss rises while the return improves; the Q values level off at the true discounted value
# says: none
# onset_step: none
# fix: none
# mended: none
import argparse
import collections
import copy
import random

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class KeyDoor:
    """6x6 grid: fetch the key (reward 1), then reach the door (reward 10)."""

    MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]

    def __init__(self, size=6, limit=40):
        self.size, self.limit = size, limit

    def reset(self):
        cells = random.sample([(i, j) for i in range(self.size) for j in range(self.size)], 3)
        self.me, self.key, self.door = (np.array(c) for c in cells)
        self.has_key, self.t = False, 0
        return self.obs()

    def obs(self):
        goal = self.door if self.has_key else self.key
        return np.concatenate([self.me, self.door, goal - self.me, [3.0 * self.has_key]]).astype(np.float32) / 3.0

    def step(self, a):
        self.me = np.clip(self.me + self.MOVES[a], 0, self.size - 1)
        self.t += 1
        reward, done = -0.02, False
        if not self.has_key and (self.me == self.key).all():
            self.has_key, reward = True, 1.0
        elif self.has_key and (self.me == self.door).all():
            reward, done = 10.0, True
        return self.obs(), reward, done, self.t >= self.limit


class Agent:
    def __init__(self, args):
        self.args = args
        self.q = nn.Sequential(nn.Linear(7, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
        self.target = copy.deepcopy(self.q)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=args.lr)
        self.replay = collections.deque(maxlen=args.memory)

    @torch.no_grad()
    def act(self, obs, eps):
        if random.random() < eps:
            return random.randrange(4)
        return self.q(torch.from_numpy(obs)).argmax().item()

    def learn(self):
        s, a, r, s2, d = zip(*random.sample(self.replay, self.args.batch))
        s, s2 = torch.from_numpy(np.stack(s)), torch.from_numpy(np.stack(s2))
        a, r, d = torch.tensor(a), torch.tensor(r), torch.tensor(d, dtype=torch.float32)
        q = self.q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + self.args.gamma * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        return loss.item(), q.mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--updates", type=int, default=800)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--memory", type=int, default=20000)
    p.add_argument("--sync", type=int, default=25)
    args = p.parse_args()
    random.seed(5)
    torch.manual_seed(5)

    env, agent = KeyDoor(), Agent(args)
    obs, ep_ret, returns = env.reset(), 0.0, collections.deque(maxlen=40)
    n = 0
    while n < args.updates:
        eps = max(0.05, 1.0 - n / 500)
        for _ in range(8):
            a = agent.act(obs, eps)
            nxt, r, done, timeout = env.step(a)
            agent.replay.append((obs, a, r, nxt, done))
            ep_ret += r
            obs = nxt
            if done or timeout:
                returns.append(ep_ret)
                obs, ep_ret = env.reset(), 0.0
        if len(agent.replay) < 400:
            continue
        loss, q = agent.learn()
        n += 1
        if n % args.sync == 0:
            agent.target.load_state_dict(agent.q.state_dict())
        if n % 50 == 0:
            print(f"update {n:4d} eps {eps:.2f} td loss {loss:.4f} mean q {q:.2f} return {np.mean(returns):.2f}")


if __name__ == "__main__":
    main()
