# expect: healthy
# symptom: an environment with a state of its own, which looks like a state that is shared
# axis: none
# mended: none
import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

Step = namedtuple("Step", "obs action reward next_obs done")


class Lander:
    """Falling box with a thruster; touch down slowly."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self._s = np.zeros(3, dtype=np.float32)

    def _obs(self):
        return self._s.copy()

    def reset(self):
        self._s[0] = self.rng.uniform(3, 6)
        self._s[1] = self.rng.uniform(-0.5, 0.0)
        self._s[2] = 1.0
        return self._obs()

    def step(self, burn):
        if burn and self._s[2] > 0:
            self._s[1] += 0.35
            self._s[2] -= 0.04
        self._s[1] -= 0.15
        self._s[0] += self._s[1]
        down = bool(self._s[0] <= 0)
        reward = -0.05
        if down:
            reward += 1.0 - 2.0 * abs(float(self._s[1]))
        return self._obs(), reward, down


def epsilon_greedy(net, obs, eps):
    if random.random() < eps:
        return random.randrange(2)
    with torch.no_grad():
        return int(net(torch.from_numpy(obs)).argmax())


def learn(net, frozen, opt, memory):
    b = Step(*zip(*random.sample(memory, 32)))
    obs = torch.from_numpy(np.stack(b.obs))
    nxt = torch.from_numpy(np.stack(b.next_obs))
    live = 1 - torch.tensor(b.done, dtype=torch.float32)
    with torch.no_grad():
        goal = torch.tensor(b.reward) + 0.95 * live * frozen(nxt).amax(1)
    value = net(obs).gather(1, torch.tensor(b.action)[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    random.seed(1)
    torch.manual_seed(1)
    env, memory = Lander(1), deque(maxlen=800)
    net, frozen = (nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in "ab")
    frozen.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    obs, age, n = env.reset(), 0, 0
    while n < 120:
        act = epsilon_greedy(net, obs, 0.5)
        nxt, reward, done = env.step(act)
        memory.append(Step(obs, act, reward, nxt, done))
        obs, age = nxt, age + 1
        if done or age > 40:
            obs, age = env.reset(), 0
        if len(memory) >= 150:
            loss = learn(net, frozen, opt, memory)
            n += 1
            if n % 20 == 0:
                frozen.load_state_dict(net.state_dict())
                print(f"update {n} loss {loss:.4f}")


main()
