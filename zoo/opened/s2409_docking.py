# expect: sick
# symptom: DQN's TD loss looks small and calm but the episode return never rises
# axis: data
# cause: The replay buffer stores tensors that share memory with the environment's in-place updated state array, so past transitions are overwritten and state equals next state.
# says: (?=.*(replay|buffer|transition|stored|memory|experience|observation|obs\b|state))(?=.*(alias|shar(e|es|ed|ing)\b.*(memory|storage|array|buffer|data|state)|same (numpy )?(array|memory|storage|tensor|object|underlying|buffer)|from_numpy|in[- ]?place|overwrit|by reference|references? to|(not|never|without|missing|lack\w*|n't)( be(ing)?| a| an| first)? ?(cop(y|ied|ying)|clon\w+)|\bview|mutat)).*
# onset_step: 1
# fix: copy the observation when turning it into a tensor (torch.tensor instead of torch.from_numpy)
# mended: yes
"""Double DQN for a small spacecraft that has to dock: 2-D position and velocity,
five thruster commands, a fuel price and a bonus at the port."""

import os
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
SEED = 5
random.seed(SEED)
torch.manual_seed(SEED)
THRUST = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)


class Docking:
    horizon = 50

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros(4, dtype=np.float32)

    def reset(self):
        self.t = 0
        self.state[:2] = self.rng.uniform(-1.5, 1.5, 2)
        self.state[2:] = self.rng.uniform(-0.2, 0.2, 2)
        return self.state

    def step(self, a):
        self.t += 1
        self.state[2:] = 0.92 * self.state[2:] + 0.12 * THRUST[a]
        self.state[:2] += 0.3 * self.state[2:] + self.rng.normal(0, 0.005, 2)
        dist = float(np.hypot(*self.state[:2]))
        speed = float(np.hypot(*self.state[2:]))
        reward = -0.1 * dist - 0.01 * (a != 0)
        done = False
        if dist < 0.25 and speed < 0.4:
            reward, done = 3.0, True
        elif dist > 3.5:
            reward, done = -3.0, True
        return self.state, reward, done, self.t >= self.horizon


if os.environ.get("MENDED") == "1":
    to_tensor = torch.tensor
else:
    to_tensor = torch.from_numpy


def make_net():
    return nn.Sequential(nn.Linear(4, 192), nn.Tanh(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 5))


q, q_target = make_net(), make_net()
q_target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1.5e-3)
replay = deque(maxlen=12000)
GAMMA, BATCH, UPDATES, PER_UPDATE = 0.97, 192, 900, 10


def greedy_score(n=40):
    env, total, docked = Docking(1234), 0.0, 0
    for _ in range(n):
        s, over = env.reset(), False
        while not over:
            with torch.no_grad():
                a = int(q(torch.from_numpy(s)).argmax())
            s, r, done, cut = env.step(a)
            total += r
            docked += done and r > 0
            over = done or cut
    return total / n, docked / n


env = Docking(SEED)
obs = to_tensor(env.reset())
ep_return, recent = 0.0, deque(maxlen=30)
frames = 0
losses = deque(maxlen=50)

for update in range(-100, UPDATES + 1):
    eps = max(0.08, 1.0 - max(update, 0) / 400)
    for _ in range(PER_UPDATE):
        if random.random() < eps:
            action = random.randrange(5)
        else:
            with torch.no_grad():
                action = int(q(obs).argmax())
        raw, reward, done, cut = env.step(action)
        nxt = to_tensor(raw)
        replay.append((obs, action, reward, nxt, done))
        ep_return += reward
        obs = nxt
        frames += 1
        if done or cut:
            recent.append(ep_return)
            ep_return = 0.0
            obs = to_tensor(env.reset())
    if update < 1:
        continue

    s, a, r, s2, d = zip(*random.sample(replay, BATCH))
    s, s2 = torch.stack(s), torch.stack(s2)
    a = torch.tensor(a).unsqueeze(1)
    r = torch.tensor(r, dtype=torch.float32)
    alive = 1.0 - torch.tensor(d, dtype=torch.float32)
    with torch.no_grad():
        best = q(s2).argmax(1, keepdim=True)
        target = r + GAMMA * alive * q_target(s2).gather(1, best).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q(s).gather(1, a).squeeze(1), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(q.parameters(), 10.0)
    opt.step()
    losses.append(loss.item())
    with torch.no_grad():
        for p, pt in zip(q.parameters(), q_target.parameters()):
            pt.lerp_(p, 0.02)
    if update % 50 == 0:
        print(
            f"update {update:4d} frames {frames:6d} eps {eps:.2f} td {np.mean(losses):.4f} "
            f"return(30) {np.mean(recent):7.2f}"
        )
    if update % 300 == 0:
        score, rate = greedy_score()
        print(f"    greedy: return {score:.2f}, docked {rate:.0%}")
