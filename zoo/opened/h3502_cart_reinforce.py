# expect: healthy
# symptom: the loss is noisy, changes sign and does not fall; resembles a run that learns nothing
# axis: none
"""REINFORCE with a value baseline on a small vectorised 'stop on the mark' task."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
ENVS, HORIZON, UPDATES, GAMMA = 32, 24, 200, 0.95


class CartField:
    """A cart on a line; push left, do nothing, push right. Reward is high near the mark and at low speed."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n

    def reset(self):
        self.pos = self.rng.uniform(-1.5, 1.5, self.n)
        self.vel = self.rng.uniform(-0.2, 0.2, self.n)
        return self.obs()

    def obs(self):
        return torch.tensor(np.stack([self.pos, 3 * self.vel], 1), dtype=torch.float32)

    def step(self, action):
        self.vel = 0.95 * self.vel + 0.08 * (action.numpy() - 1) + self.rng.normal(0, 0.01, self.n)
        self.pos = self.pos + self.vel
        reward = np.exp(-2 * np.abs(self.pos)) - 0.5 * np.abs(self.vel)
        return self.obs(), torch.tensor(reward, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))
        self.critic = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))

    def value(self, obs, t):
        left = torch.full((len(obs), 1), 1 - t / HORIZON)
        return self.critic(torch.cat([obs, left], 1)).squeeze(-1)


def play(env, net):
    obs = env.reset()
    logps, values, rewards, entropies = [], [], [], []
    for t in range(HORIZON):
        dist = Categorical(logits=net.actor(obs))
        action = dist.sample()
        logps.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(net.value(obs, t))
        obs, reward = env.step(action)
        rewards.append(reward)
    return torch.stack(logps), torch.stack(values), torch.stack(rewards), torch.stack(entropies)


def discounted(rewards):
    out, run = [], torch.zeros(rewards.shape[1])
    for r in rewards.flip(0):
        run = r + GAMMA * run
        out.append(run)
    return torch.stack(out[::-1])


def main():
    torch.manual_seed(9)
    env = CartField(ENVS, 1)
    net = ActorCritic()
    opt = torch.optim.Adam(
        [{"params": net.actor.parameters(), "lr": 5e-3}, {"params": net.critic.parameters(), "lr": 1e-2}]
    )
    recent = []
    for update in range(UPDATES):
        logp, value, reward, entropy = play(env, net)
        ret = discounted(reward)
        adv = ret - value.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy_loss = -(logp * adv).mean()
        value_loss = (value - ret).pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.003 * entropy.mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        recent.append(reward.sum(0).mean().item())
        if update % 10 == 0:
            print(
                f"update {update:4d} loss {policy_loss.item():+.4f} value {value_loss.item():.3f} "
                f"entropy {entropy.mean().item():.3f} return {np.mean(recent[-10:]):.2f}"
            )
    print(f"first ten returns {np.mean(recent[:10]):.2f}, last ten returns {np.mean(recent[-10:]):.2f}")


if __name__ == "__main__":
    main()
