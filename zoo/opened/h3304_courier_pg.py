# expect: healthy
# symptom: the policy loss hovers about zero and is noisy, never falling; resembles a run that does not learn
# axis: loss
"""Policy gradient with a learned baseline for a courier on a 7x7 grid (vectorised environment)."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
GRID, HORIZON, ENVS, GAMMA = 7, 22, 64, 0.97
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class CourierEnv:
    """Reach the target cell; reward 1 at the target, -0.02 for every step before."""

    def __init__(self, n, seed):
        self.n, self.gen = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.pos = torch.randint(0, GRID, (self.n, 2), generator=self.gen)
        shift = torch.randint(1, GRID * GRID, (self.n,), generator=self.gen)
        flat = (self.pos[:, 0] * GRID + self.pos[:, 1] + shift) % (GRID * GRID)
        self.goal = torch.stack([flat // GRID, flat % GRID], 1)
        self.done = torch.zeros(self.n, dtype=torch.bool)
        return self.observe()

    def observe(self):
        one_hot = nn.functional.one_hot(torch.cat([self.pos, self.goal], 1), GRID)
        return one_hot.flatten(1).float()

    def step(self, action):
        alive = ~self.done
        moved = (self.pos + MOVES[action]).clamp(0, GRID - 1)
        self.pos = torch.where(alive.unsqueeze(1), moved, self.pos)
        hit = alive & (self.pos == self.goal).all(1)
        reward = torch.where(hit, 1.0, -0.02) * alive
        self.done = self.done | hit
        return self.observe(), reward, alive


class ActorCritic(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(4 * GRID, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, len(MOVES))
        )
        self.critic = nn.Sequential(nn.Linear(4 * GRID, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


def rollout(env, agent):
    obs, logs = env.reset(), {k: [] for k in ("logp", "value", "reward", "alive", "entropy")}
    for _ in range(HORIZON):
        dist, value = agent(obs)
        action = dist.sample()
        obs, reward, alive = env.step(action)
        for k, v in zip(logs, (dist.log_prob(action), value, reward, alive.float(), dist.entropy())):
            logs[k].append(v)
    return {k: torch.stack(v) for k, v in logs.items()}


def returns_to_go(reward):
    out, acc = torch.zeros_like(reward), torch.zeros(reward.shape[1])
    for t in reversed(range(len(reward))):
        acc = reward[t] + GAMMA * acc
        out[t] = acc
    return out


def main():
    torch.manual_seed(29)
    env, agent = CourierEnv(ENVS, 7), ActorCritic()
    opt = torch.optim.Adam(agent.parameters(), lr=1.5e-3)
    recent = []
    for step in range(1, 301):
        r = rollout(env, agent)
        ret = returns_to_go(r["reward"])
        mask, count = r["alive"], r["alive"].sum()
        adv = (ret - r["value"]).detach()
        mu = (adv * mask).sum() / count
        sd = (((adv - mu) ** 2 * mask).sum() / count).sqrt()
        adv = (adv - mu) / (sd + 1e-6)
        policy = -(r["logp"] * adv * mask).sum() / count
        value = ((ret - r["value"]) ** 2 * mask).sum() / count
        entropy = (r["entropy"] * mask).sum() / count
        loss = policy + 0.5 * value - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        opt.step()
        recent.append((r["reward"].sum(0).mean().item(), env.done.float().mean().item()))
        if step % 20 == 0:
            reward, success = (sum(c) / 20 for c in zip(*recent[-20:]))
            print(
                f"step {step:4d}  loss {loss.item():+.4f}  policy {policy.item():+.4f}  value {value.item():.4f}"
                f"  reward {reward:+.3f}  success {success:.3f}"
            )


if __name__ == "__main__":
    main()
