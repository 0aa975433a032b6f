# expect: healthy
# symptom: the policy loss is rough, changes its sign and does not fall (resembles a policy that learns nothing)
# axis: loss
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)

N_ENV, HORIZON, GAMMA = 32, 25, 0.97


class TankEnv:
    """Water tank with two pipes: keep the level near a moving target with close / hold / open."""

    def __init__(self, n, seed):
        self.n = n
        self.g = torch.Generator().manual_seed(seed)

    def reset(self):
        self.level = torch.rand(self.n, generator=self.g) * 2 - 1
        self.speed = torch.zeros(self.n)
        self.target = torch.rand(self.n, generator=self.g) * 2 - 1
        return self.obs()

    def obs(self):
        return torch.stack([self.level, self.speed, self.target], dim=1)

    def step(self, action):
        push = (action.float() - 1.0) * 0.12
        self.speed = 0.7 * self.speed + push + 0.02 * torch.randn(self.n, generator=self.g)
        self.level = (self.level + self.speed).clamp(-2, 2)
        reward = 1.0 - (self.level - self.target).abs()
        return self.obs(), reward


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 3))
        self.critic = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


def rollout(env, net):
    obs = env.reset()
    logps, values, rewards, entropies = [], [], [], []
    for _ in range(HORIZON):
        dist, value = net(obs)
        action = dist.sample()
        obs, reward = env.step(action)
        logps.append(dist.log_prob(action))
        values.append(value)
        rewards.append(reward)
        entropies.append(dist.entropy())
    with torch.no_grad():
        running = net(obs)[1]
    returns = []
    for r in reversed(rewards):
        running = r + GAMMA * running
        returns.insert(0, running)
    stack = torch.stack
    return stack(logps), stack(values), stack(returns), stack(rewards), stack(entropies)


def main():
    env, net = TankEnv(N_ENV, seed=0), ActorCritic()
    opt = torch.optim.Adam(
        [{"params": net.actor.parameters(), "lr": 3e-3}, {"params": net.critic.parameters(), "lr": 6e-3}]
    )
    first, recent = None, []
    for update in range(1, 301):
        logp, value, ret, reward, entropy = rollout(env, net)
        adv = ret - value.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy_loss = -(logp * adv).mean()
        value_loss = F.smooth_l1_loss(value, ret)
        loss = policy_loss + 0.5 * value_loss - 0.005 * entropy.mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        recent.append(reward.sum(0).mean().item())
        if update % 20 == 0:
            avg = sum(recent) / len(recent)
            first = first if first is not None else avg
            print(
                f"update {update:4d} loss {loss.item():+.4f} policy {policy_loss.item():+.4f} "
                f"value {value_loss.item():.4f} entropy {entropy.mean().item():.3f} return {avg:.2f}"
            )
            recent = []
    print(f"final return {avg:.2f} (first 20 updates {first:.2f}, best possible below {HORIZON})")


if __name__ == "__main__":
    main()
