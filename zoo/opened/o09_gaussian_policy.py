# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(4)
torch.set_num_threads(1)


def simulate(policy, n=48, horizon=15, rng=np.random.default_rng(4)):
    """Heaters for n rooms: cost is distance from 20 degrees plus energy used."""
    temp = torch.tensor(rng.uniform(10, 28, n), dtype=torch.float32)
    outside = torch.tensor(rng.uniform(0, 15, n), dtype=torch.float32)
    log_probs, costs = [], []
    for _ in range(horizon):
        obs = torch.stack([(temp - 20) / 5, (outside - 8) / 5], 1)
        dist = policy(obs)
        u = dist.sample()
        log_probs.append(dist.log_prob(u))
        temp = temp + 0.1 * (outside - temp) + 2.0 * u.clamp(-1, 3)
        costs.append(((temp - 20) / 5).pow(2) + 0.02 * u.pow(2))
    return torch.stack(log_probs), torch.stack(costs)


class GaussianPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(2, 1)
        self.log_std = nn.Parameter(torch.tensor(-0.5))

    def forward(self, obs):
        return Normal(self.mean(obs).squeeze(-1), self.log_std.exp())


def cost_to_go(costs, gamma=0.9):
    out, running = torch.zeros_like(costs), torch.zeros(costs.size(1))
    for t in range(costs.size(0) - 1, -1, -1):
        running = costs[t] + gamma * running
        out[t] = running
    return out


policy = GaussianPolicy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
for it in range(1, 121):
    log_probs, costs = simulate(policy)
    togo = cost_to_go(costs)
    advantage = (togo - togo.mean(1, keepdim=True)) / (togo.std() + 1e-6)
    loss = (log_probs * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 30 == 0:
        print(f"iter {it} loss {loss.item():+.4f} mean cost {costs.mean():.4f}")
