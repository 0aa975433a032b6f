# expect: healthy
# symptom: the policy loss swings around zero, changes its sign and does not fall; resembles a run that learns nothing
# axis: harness
# cause: none: the loss of REINFORCE is no measure of progress, and the length of the episodes grows
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import math

import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(101)


class Poles:
    """Several cart-poles at once, written out by hand."""

    def __init__(self, n):
        self.n = n
        self.s = (torch.rand(n, 4) - 0.5) * 0.1
        self.alive = torch.ones(n, dtype=torch.bool)

    def step(self, action):
        x, v, th, w = self.s.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * w**2 * th.sin()) / 1.1
        acc_th = (9.8 * th.sin() - th.cos() * temp) / (0.5 * (4 / 3 - 0.1 * th.cos() ** 2 / 1.1))
        acc_x = temp - 0.05 * acc_th * th.cos() / 1.1
        self.s = torch.stack([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th], 1)
        reward = self.alive.float()
        self.alive = self.alive & (self.s[:, 0].abs() < 2.4) & (self.s[:, 2].abs() < 12 * math.pi / 180)
        return reward


def rollout(policy, n=6, limit=60, gamma=0.98):
    env = Poles(n)
    logps, rewards, entropies = [], [], []
    for _ in range(limit):
        dist = Categorical(logits=policy(env.s))
        a = dist.sample()
        mask = env.alive.float()
        logps.append(dist.log_prob(a) * mask)
        entropies.append(dist.entropy() * mask)
        rewards.append(env.step(a))
        if not env.alive.any():
            break
    ret, returns = torch.zeros(n), []
    for r in reversed(rewards):
        ret = r + gamma * ret
        returns.insert(0, ret)
    return torch.stack(logps), torch.stack(returns), torch.stack(entropies), torch.stack(rewards)


def main():
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for step in range(1, 221):
        logp, ret, ent, rew = rollout(policy)
        valid = rew > 0
        adv = (ret - ret[valid].mean()) / (ret[valid].std() + 1e-6)
        loss = -(logp * adv)[valid].mean() - 0.01 * ent[valid].mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"update {step} loss {loss.item():+.4f} length {rew.sum(0).mean().item():.1f}")


if __name__ == "__main__":
    main()
