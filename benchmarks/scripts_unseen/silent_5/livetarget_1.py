# expect: sick
# fault: the advantage (returns minus value) is not detached in the policy loss, so the policy term also pushes the value head
# onset_step: 1
# says: (?i)(detach|stop.?grad|carries a gradient|live.?target)
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(19)

ENVS, HORIZON, GAMMA = 24, 12, 0.95


class Drift:
    """Batched 2-D point which four thrusters push toward a moving goal."""

    def __init__(self, n):
        self.n = n
        self.moves = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) * 0.25
        self.reset()

    def reset(self):
        self.at = torch.randn(self.n, 2)
        self.goal = torch.randn(self.n, 2)
        return self.obs()

    def obs(self):
        return torch.cat([self.at, self.goal], dim=1)

    def step(self, action):
        self.at = self.at + self.moves[action] + 0.03 * torch.randn(self.n, 2)
        reward = -(self.at - self.goal).norm(dim=1) * 0.2
        return self.obs(), reward


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 4)
        self.v = nn.Linear(64, 1)

    def forward(self, obs):
        z = self.trunk(obs)
        return Categorical(logits=self.pi(z)), self.v(z).squeeze(-1)


def rollout(env, net):
    obs = env.reset()
    logps, values, rewards, ents = [], [], [], []
    for _ in range(HORIZON):
        dist, value = net(obs)
        action = dist.sample()
        obs, reward = env.step(action)
        logps.append(dist.log_prob(action))
        ents.append(dist.entropy())
        values.append(value)
        rewards.append(reward)
    acc = torch.zeros(ENVS)
    returns = []
    for r in reversed(rewards):
        acc = r + GAMMA * acc
        returns.insert(0, acc)
    return map(torch.stack, (logps, values, returns, ents, rewards))


env, net = Drift(ENVS), ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)

for update in range(1, 201):
    logp, value, ret, ent, rew = rollout(env, net)
    advantage = ret - value
    policy_loss = -(logp * advantage).mean()
    value_loss = (ret - value).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * ent.mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    if update % 50 == 0:
        print(f"update {update} reward {rew.sum(0).mean():.3f} pi {policy_loss:.4f} v {value_loss:.4f}")
