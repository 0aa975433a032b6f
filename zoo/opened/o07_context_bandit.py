# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

COEF = {"policy": 1.0, "value": 0.5, "entropy": -0.01}


class ContextBandit:
    def __init__(self, n_context=5, n_arms=6, seed=0):
        self.rng = np.random.default_rng(seed)
        self.w = self.rng.normal(size=(n_context, n_arms))
        self.n_context = n_context

    def contexts(self, n):
        return self.rng.normal(size=(n, self.n_context)).astype(np.float32)

    def pull(self, c, a):
        mean = (c @ self.w)[np.arange(len(a)), a]
        return (mean + 0.2 * self.rng.normal(size=len(a))).astype(np.float32)

    def best(self, c):
        return (c @ self.w).max(1).mean()


class Agent(nn.Module):
    def __init__(self, n_context, n_arms):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(n_context, 32), nn.Tanh(), nn.Linear(32, n_arms))
        self.critic = nn.Sequential(nn.Linear(n_context, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, c):
        return Categorical(logits=self.actor(c)), self.critic(c).squeeze(-1)


def surrogate(ratio, adv, clip=0.2):
    """Returned ready to be minimised."""
    return torch.max(-adv * ratio, -adv * ratio.clamp(1 - clip, 1 + clip)).mean()


def terms(agent, c, a, r, old_logp):
    dist, value = agent(c)
    adv = r - value.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    ratio = (dist.log_prob(a) - old_logp).exp()
    return {
        "policy": surrogate(ratio, adv),
        "value": F.smooth_l1_loss(value, r),
        "entropy": dist.entropy().mean(),
    }


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    env = ContextBandit()
    agent = Agent(5, 6)
    opt = torch.optim.Adam(agent.parameters(), lr=8e-3)
    for it in range(1, 51):
        c_np = env.contexts(128)
        c = torch.from_numpy(c_np)
        with torch.no_grad():
            dist, _ = agent(c)
            a = dist.sample()
            old_logp = dist.log_prob(a)
        r = torch.from_numpy(env.pull(c_np, a.numpy()))
        for _ in range(4):
            parts = terms(agent, c, a, r, old_logp)
            loss = sum(COEF[k] * v for k, v in parts.items())
            opt.zero_grad()
            loss.backward()
            opt.step()
        if it % 10 == 0:
            print(f"iter {it} loss {loss.item():.3f} reward {r.mean():.3f} of {env.best(c_np):.3f}")


main()
