# expect: healthy
# symptom: the surrogate loss is noisy, negative at times and does not fall; resembles a run that learns nothing
# axis: none
"""Greenhouse valve control with an actor-critic; the number to watch is the return, not the loss."""

import torch
from torch import nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(2)

ENVS, HORIZON, UPDATES, GAMMA, LAMBDA = 16, 20, 300, 0.97, 0.95


class Greenhouse:
    """Keep temperature and moisture near a drifting set point with five discrete valve moves."""

    moves = torch.tensor([[0.0, 0.0], [0.25, 0.0], [-0.25, 0.0], [0.0, 0.25], [0.0, -0.25]])

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.state = torch.zeros(n, 2)
        self.goal = torch.zeros(n, 2)
        self.t = torch.zeros(n)
        self.restart(torch.ones(n, dtype=torch.bool))

    def restart(self, mask):
        k = int(mask.sum())
        if k:
            self.state[mask] = 2 * torch.rand(k, 2, generator=self.g) - 1
            self.goal[mask] = 2 * torch.rand(k, 2, generator=self.g) - 1
            self.t[mask] = torch.randint(0, 10, (k,), generator=self.g).float()

    def observe(self):
        return torch.cat([self.state, self.goal, self.goal - self.state, (1 - self.t / 50)[:, None]], 1)

    def step(self, action):
        noise = 0.03 * torch.randn(self.n, 2, generator=self.g)
        self.state = (self.state + self.moves[action] + noise).clamp(-2, 2)
        reward = -(self.state - self.goal).abs().sum(1)
        self.t = self.t + 1
        done = self.t >= 50
        self.restart(done)
        return self.observe(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, obs=7, hidden=64, actions=5):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, actions)
        )
        self.v = nn.Sequential(
            nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        nn.init.normal_(self.pi[-1].weight, std=0.01)

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.v(obs).squeeze(-1)


def rollout(env, net, obs):
    rows = []
    with torch.no_grad():
        for _ in range(HORIZON):
            dist, value = net(obs)
            action = dist.sample()
            nxt, reward, done = env.step(action)
            rows.append((obs, action, value, reward, done))
            obs = nxt
        last = net(obs)[1]
    return obs, [torch.stack(c) for c in zip(*rows)], last


def advantages(value, reward, done, last):
    adv, acc = torch.zeros_like(reward), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        alive = 1 - done[t]
        follow = last if t == HORIZON - 1 else value[t + 1]
        delta = reward[t] + GAMMA * alive * follow - value[t]
        acc = delta + GAMMA * LAMBDA * alive * acc
        adv[t] = acc
    return adv


def main():
    env = Greenhouse(ENVS, 5)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    obs = env.observe()
    for it in range(UPDATES):
        obs, (o, a, v, r, d), last = rollout(env, net, obs)
        adv = advantages(v, r, d, last)
        target = adv + v
        dist, value = net(o)
        norm_adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy = -(dist.log_prob(a) * norm_adv).mean()
        critic = 0.02 * F.smooth_l1_loss(value, target)
        entropy = dist.entropy().mean()
        loss = policy + critic - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        if it % 20 == 0:
            print(
                f"update {it:4d} loss {loss.item():+.4f} entropy {entropy.item():.3f} "
                f"reward/step {r.mean().item():.4f}",
                flush=True,
            )
    print(f"final reward/step {r.mean().item():.4f}")


if __name__ == "__main__":
    main()
