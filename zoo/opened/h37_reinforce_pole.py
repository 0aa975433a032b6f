# expect: healthy
# symptom: the policy loss is noisy, changes its sign and does not fall, as if nothing were learned, while the reward rises
# axis: loss
# cause: none
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(40)
policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
log_std = nn.Parameter(torch.tensor(-0.5))
opt = torch.optim.Adam([*policy.parameters(), log_std], lr=5e-3)


def rollout(n=64, horizon=20):
    """Bring a point mass to rest at the origin."""
    x, v = 2 * torch.rand(n) - 1, torch.zeros(n)
    logps, rewards = [], []
    for _ in range(horizon):
        pi = Normal(policy(torch.stack([x, v], 1)).squeeze(1), log_std.exp())
        a = pi.sample()
        logps.append(pi.log_prob(a))
        v = v + 0.2 * a.clamp(-2, 2)
        x = x + 0.2 * v
        rewards.append(-(x**2) - 0.1 * v**2)
    return torch.stack(logps), torch.stack(rewards)


for it in range(300):
    logp, r = rollout()
    togo = r.flip(0).cumsum(0).flip(0)
    adv = (togo - togo.mean(1, keepdim=True)) / (togo.std() + 1e-6)
    loss = -(logp * adv).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 25 == 0 or it == 299:
        print(f"it {it} loss {loss.item():+.4f} reward {r.sum(0).mean().item():.3f}")
