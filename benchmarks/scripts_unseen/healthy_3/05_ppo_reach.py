# expect: healthy
# fault: a loss that does not fall (PPO surrogate), the same rollout used several times
# note: PPO on a one-dimensional reaching task; the surrogate hovers near 0 and the value loss moves with the returns, the return rises.
import torch
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)
torch.manual_seed(3)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.v = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1) - 0.5)

    def dist(self, o):
        return Normal(self.pi(o), self.log_std.exp())


@torch.no_grad()
def rollout(ac, envs=32, horizon=12):
    pos, goal = torch.zeros(envs, 1), torch.rand(envs, 1) * 4 - 2
    obs, acts, logp, rews = [], [], [], []
    for _ in range(horizon):
        o = torch.cat([pos, goal], 1)
        a = ac.dist(o).sample()
        obs.append(o)
        acts.append(a)
        logp.append(ac.dist(o).log_prob(a))
        pos = pos + 0.4 * a.clamp(-2, 2)
        rews.append(-(pos - goal).abs())
    ret, g = [], torch.zeros(envs, 1)
    for r in reversed(rews):
        g = r + 0.9 * g
        ret.insert(0, g)
    cat = lambda xs: torch.cat(xs)
    return cat(obs), cat(acts), cat(logp), cat(ret), sum(rews).mean().item()


ac = ActorCritic()
opt = torch.optim.Adam(ac.parameters(), lr=5e-3)
for update in range(25):
    o, a, lp, ret, score = rollout(ac)
    adv = ret - ac.v(o).detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for epoch in range(3):
        for idx in torch.randperm(len(o)).chunk(3):
            d = ac.dist(o[idx])
            ratio = (d.log_prob(a[idx]) - lp[idx]).exp()
            surr = torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
            vloss = (ac.v(o[idx]) - ret[idx]).pow(2).mean()
            loss = -surr + 0.5 * vloss - 0.005 * d.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
            opt.step()
    if update % 3 == 0:
        print(f"update {update} return {score:.2f} loss {loss.item():.3f}")
