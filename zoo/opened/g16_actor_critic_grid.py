# expect: sick
# symptom: the average reward creeps to 0.6 in 400 updates where the same code of a colleague reaches 0.9 after 200, although the value head learns
# axis: loss
# cause: the advantage has shape [N, 1] and the log-probabilities [N], so the product broadcasts to [N, N] and each action is credited with the advantages of all others
# says: broadcast|\[?N,? ?[x×]?N\]?|shape|outer product|squeeze|\(N, ?1\)|N ?x ?N
# onset_step: 0
# fix: squeeze the advantage (or unsqueeze the log-probabilities) before the product
# mended: the advantage is squeezed
import os
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(6)
MENDED = os.environ.get("MENDED") == "1"
N_ENV, OBS, ACTIONS = 64, 8, 4


class Bandits:
    """The right action depends on the sign pattern of two features."""

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.obs = torch.randn(self.n, OBS)
        return self.obs

    def step(self, action):
        best = (self.obs[:, 0] > 0).long() * 2 + (self.obs[:, 3] > 0).long()
        reward = (action == best).float() + 0.3 * torch.randn(self.n)
        return reward.unsqueeze(1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
        self.v = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.v(obs)


env, agent = Bandits(N_ENV), ActorCritic()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
history = []
for update in range(400):
    obs = env.reset()
    dist, value = agent(obs)
    action = dist.sample()
    reward = env.step(action)
    advantage = (reward - value).detach()
    if MENDED:
        advantage = advantage.squeeze(1)
    policy_loss = -(advantage * dist.log_prob(action)).mean()
    value_loss = (reward - value).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.005 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(reward.mean().item())
    if (update + 1) % 50 == 0:
        print(
            f"update {update + 1} reward {sum(history[-50:]) / 50:.3f} value loss {value_loss.item():.3f} entropy {dist.entropy().mean().item():.3f}"
        )
