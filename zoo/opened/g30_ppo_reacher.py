# expect: sick
# symptom: the return gets worse from the first updates on (from -13 to below -700), the KL from the behaviour policy is in the hundreds, yet the clip fraction is 0 in all updates
# axis: loss
# cause: the old log-probabilities are computed anew from the current policy in each minibatch, so the ratio is always 1 and the clip never acts
# says: ratio.*(1|one|constant|never|always)|old.?log.?prob|(old|behaviou?r) (policy|log).*(current|same|recomput|updated)|clip.*(never|no effect|inactive)|same (policy|network)
# onset_step: 0
# fix: store the log-probabilities at the time of the roll-out
# mended: the log-probabilities of the roll-out are used
import os
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.set_num_threads(1)
torch.manual_seed(16)
MENDED = os.environ.get("MENDED") == "1"
ENVS, HORIZON, EPOCHS, MINIBATCH, CLIP = 16, 12, 6, 48, 0.2


class Reacher:
    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.pos, self.goal = torch.zeros(self.n, 2), 2 * torch.rand(self.n, 2) - 1
        return torch.cat([self.pos, self.goal], 1)

    def step(self, a):
        self.pos = (self.pos + 0.3 * a.clamp(-1, 1)).clamp(-2, 2)
        reward = -(self.pos - self.goal).norm(dim=1) - 0.01 * a.pow(2).sum(1)
        return torch.cat([self.pos, self.goal], 1), reward


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
        self.log_std = nn.Parameter(torch.full((2,), -0.7))
        self.v = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))

    def dist(self, s):
        return Normal(self.mu(s), self.log_std.exp())


def collect(agent, env):
    s, out = env.reset(), []
    with torch.no_grad():
        for _ in range(HORIZON):
            d = agent.dist(s)
            a = d.sample()
            s2, r = env.step(a)
            out.append((s, a, d.log_prob(a).sum(1), r))
            s = s2
    S, A, LP, R = (torch.stack(v) for v in zip(*out))
    G = torch.zeros_like(R)
    g = torch.zeros(env.n)
    for t in reversed(range(HORIZON)):
        g = R[t] + 0.9 * g
        G[t] = g
    return S.flatten(0, 1), A.flatten(0, 1), LP.flatten(), G.flatten(), R.sum(0).mean().item()


agent, env = Agent(), Reacher(ENVS)
opt = torch.optim.Adam(agent.parameters(), lr=4e-3)
for update in range(14):
    S, A, LP, G, ret = collect(agent, env)
    with torch.no_grad():
        adv = G - agent.v(S).squeeze(1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    clipped = []
    for _ in range(EPOCHS):
        for i in torch.randperm(len(S)).split(MINIBATCH):
            new_logp = agent.dist(S[i]).log_prob(A[i]).sum(1)
            if MENDED:
                old_logp = LP[i]
            else:
                with torch.no_grad():
                    old_logp = agent.dist(S[i]).log_prob(A[i]).sum(1)
            ratio = (new_logp - old_logp).exp()
            surrogate = torch.min(ratio * adv[i], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[i])
            loss = -surrogate.mean() + 0.5 * (agent.v(S[i]).squeeze(1) - G[i]).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            clipped.append(((ratio - 1).abs() > CLIP).float().mean().item())
    with torch.no_grad():
        kl = (LP - agent.dist(S).log_prob(A).sum(1)).mean().item()
    print(f"update {update} return {ret:.3f} clip fraction {sum(clipped) / len(clipped):.3f} kl {kl:.4f}")
