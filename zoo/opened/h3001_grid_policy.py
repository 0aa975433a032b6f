# expect: healthy
# symptom: loss wanders around zero with no trend, as with a policy gradient that learns nothing
# axis: none
"""Policy gradient with a learned baseline on a small vectorised grid world."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.set_num_threads(1)
SEED, UPDATES, ENVS, HORIZON, SIZE, GAMMA = 4, 300, 64, 16, 6, 0.95


class Grid:
    """Walk to the goal; +1 and a new goal when it is reached, a small cost for every move."""

    MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.reset()

    def _spots(self, k):
        return torch.randint(0, SIZE, (k, 2), generator=self.gen)

    def reset(self):
        self.pos, self.goal = self._spots(self.n), self._spots(self.n)
        return self.obs()

    def obs(self):
        return torch.cat([self.pos, self.goal], dim=1).float() / (SIZE - 1) * 2 - 1

    def step(self, action):
        self.pos = (self.pos + self.MOVES[action]).clamp(0, SIZE - 1)
        hit = (self.pos == self.goal).all(dim=1)
        reward = hit.float() - 0.02
        fresh = self._spots(self.n)
        self.goal = torch.where(hit[:, None], fresh, self.goal)
        return self.obs(), reward


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 4)
        self.v = nn.Linear(64, 1)
        nn.init.zeros_(self.pi.weight)

    def forward(self, o):
        h = self.body(o)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def rollout(env, agent):
    obs = env.reset()
    seen, acts, rewards = [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            a = agent(obs)[0].sample()
        seen.append(obs)
        acts.append(a)
        obs, r = env.step(a)
        rewards.append(r)
    with torch.no_grad():
        acc = agent(obs)[1]
    returns = []
    for r in reversed(rewards):
        acc = r + GAMMA * acc
        returns.append(acc)
    returns.reverse()
    return torch.stack(seen), torch.stack(acts), torch.stack(returns), torch.stack(rewards)


def main():
    torch.manual_seed(SEED)
    env = Grid(ENVS, torch.Generator().manual_seed(SEED))
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=3e-3)
    history = []
    for update in range(1, UPDATES + 1):
        obs, act, ret, rew = rollout(env, agent)
        dist, value = agent(obs)
        adv = (ret - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy_loss = -(dist.log_prob(act) * adv).mean()
        value_loss = F.mse_loss(value, ret)
        entropy = dist.entropy().mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        history.append(rew.sum(0).mean().item())
        if update % 20 == 0 or update == 1:
            print(
                f"update {update} loss {loss.item():+.4f} entropy {entropy.item():.3f} "
                f"reward per episode {sum(history[-20:]) / len(history[-20:]):+.3f}"
            )
    print(f"first 20: {sum(history[:20]) / 20:+.3f}  last 20: {sum(history[-20:]) / 20:+.3f}")


if __name__ == "__main__":
    main()
