# expect: sick
# symptom: the episode length falls at once and never rises; the loss itself tells nothing
# axis: loss
# cause: the discounted returns are built from the last step backwards and never put back in time order
# says: (return|reward|advantage)s?.{0,80}(revers|order|align|backward|flip|time)|revers.{0,50}return
# onset_step: 0
# fix: reverse the list of returns before pairing it with the log-probabilities
# mended: the script applies that change if the environment has MENDED=1
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(2)
random.seed(2)
MENDED = os.environ.get("MENDED") == "1"

GAMMA = 0.98
EPISODES_PER_UPDATE = 6
UPDATES = 150
MAX_LEN = 120


class PoleEnv:
    """Cart and pole, Euler integration, reward 1 for every step the pole is up."""

    def reset(self):
        self.s = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return self.s

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = math.cos(th), math.sin(th)
        temp = (force + 0.05 * w * w * s) / 1.1
        acc_th = (9.8 * s - c * temp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        acc_x = temp - 0.05 * acc_th * c / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21 or self.t >= MAX_LEN
        return self.s, 1.0, done


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, obs):
        return Categorical(logits=self.net(obs))


def discounted_returns(rewards, gamma=GAMMA):
    running, out = 0.0, []
    for r in reversed(rewards):
        running = r + gamma * running
        out.append(running)
    return out[::-1] if MENDED else out


@torch.no_grad()
def run_episode(env, policy):
    obs, done = env.reset(), False
    states, actions, rewards = [], [], []
    while not done:
        p = policy(torch.tensor(obs)).probs[1].item()
        a = 1 if random.random() < p else 0
        states.append(obs)
        actions.append(a)
        obs, r, done = env.step(a)
        rewards.append(r)
    return states, actions, rewards


def collect(env, policy, n):
    states, actions, returns, lengths = [], [], [], []
    for _ in range(n):
        s, a, r = run_episode(env, policy)
        states += s
        actions += a
        returns += discounted_returns(r)
        lengths.append(len(r))
    return torch.tensor(states), torch.tensor(actions), torch.tensor(returns), lengths


def main():
    env, policy = PoleEnv(), Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    history = []
    for update in range(UPDATES):
        states, actions, returns, lengths = collect(env, policy, EPISODES_PER_UPDATE)
        adv = (returns - returns.mean()) / (returns.std() + 1e-6)
        dist = policy(states)
        loss = -(dist.log_prob(actions) * adv).mean() - 0.005 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(np.mean(lengths))
        if update % 10 == 0:
            print(
                f"update {update:3d} loss {loss.item():+.4f} mean length {history[-1]:6.1f} "
                f"entropy {dist.entropy().mean().item():.3f}"
            )
    final = np.mean([len(run_episode(env, policy)[2]) for _ in range(30)])
    print(f"final mean episode length {final:.1f} (best possible {MAX_LEN})")


if __name__ == "__main__":
    main()
