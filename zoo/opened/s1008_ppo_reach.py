# expect: sick
# symptom: value loss stays at the variance of the returns, explained variance stays about 0, the return improves slower and ends lower
# axis: loss
# cause: the critic returns shape (N, 1) and is subtracted from returns of shape (N,); the difference broadcasts to (N, N), so the critic learns only the mean return
# says: broadcast\w*|shape.{0,80}(mismatch|\(N, ?1\)|differ|unsqueeze|squeeze)|(N|B|batch)[ ,x×]+\(?(N|B|batch)\)? (matrix|pairwise|difference)|squeeze|pairwise
# onset_step: 1
# fix: squeeze the value output to (N,) before the loss
# mended: the critic's output is squeezed with squeeze(-1) in the loss
import os
import time

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)

ENVS, HORIZON, GAMMA, LAM = 32, 48, 0.97, 0.95


class ReachEnv:
    """point mass with friction has to reach a goal and stay near it; 60 steps per episode"""

    def __init__(self, n):
        self.n = n
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        if not hasattr(self, "p"):
            self.p, self.v, self.g = (torch.zeros(self.n, 2) for _ in range(3))
            self.t = torch.zeros(self.n)
        k = int(which.sum())
        self.p[which] = torch.rand(k, 2) * 2 - 1
        self.g[which] = torch.rand(k, 2) * 2 - 1
        self.v[which] = 0.0
        self.t[which] = torch.randint(0, 40, (k,)).float() if float(self.t.max()) == 0 else 0.0

    def obs(self):
        return torch.cat([self.g - self.p, self.v * 3, self.p, (self.t / 60).unsqueeze(1)], 1)

    def step(self, a):
        self.v = 0.85 * self.v + 0.04 * a.clamp(-1, 1)
        self.p = (self.p + self.v).clamp(-1.5, 1.5)
        self.t = self.t + 1
        dist = (self.p - self.g).norm(dim=1)
        r = -dist + (dist < 0.1).float() - 0.01 * a.pow(2).sum(1)
        done = self.t >= 60
        if done.any():
            self.reset(done)
        return self.obs(), r, done.float()


class ActorCritic(nn.Module):
    def __init__(self, obs=7, act=2, h=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, act))
        self.vf = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def dist(self, o):
        return torch.distributions.Normal(self.pi(o), self.log_std.exp())


@torch.no_grad()
def collect(env, net, obs):
    O, A, LP, R, D, V = [], [], [], [], [], []
    for _ in range(HORIZON):
        d = net.dist(obs)
        a = d.sample()
        O.append(obs), A.append(a), LP.append(d.log_prob(a).sum(1)), V.append(net.vf(obs).flatten())
        obs, r, done = env.step(a)
        R.append(0.1 * r), D.append(done)
    V.append(net.vf(obs).flatten())
    adv, last = [], torch.zeros(env.n)
    for t in reversed(range(HORIZON)):
        delta = R[t] + GAMMA * V[t + 1] * (1 - D[t]) - V[t]
        last = delta + GAMMA * LAM * (1 - D[t]) * last
        adv.insert(0, last)
    adv = torch.stack(adv)
    ret = adv + torch.stack(V[:-1])
    return (
        obs,
        [torch.cat(O), torch.cat(A), torch.cat(LP), adv.flatten(), ret.flatten()],
        10 * torch.stack(R).mean().item(),
    )


def main():
    env, net = ReachEnv(ENVS), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
    obs, t0, updates = env.obs(), time.time(), 0
    for it in range(1, 71):
        obs, (O, A, LP, ADV, RET), mean_r = collect(env, net, obs)
        ADV = (ADV - ADV.mean()) / (ADV.std() + 1e-8)
        for _ in range(3):
            for mb in torch.randperm(len(O)).chunk(4):
                d = net.dist(O[mb])
                ratio = (d.log_prob(A[mb]).sum(1) - LP[mb]).exp()
                pg = -torch.min(ratio * ADV[mb], ratio.clamp(0.8, 1.2) * ADV[mb]).mean()
                value = net.vf(O[mb])
                if MENDED:
                    value = value.squeeze(-1)
                vf_loss = (RET[mb] - value).pow(2).mean()
                loss = pg + 0.5 * vf_loss - 0.003 * d.entropy().sum(1).mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                updates += 1
        if it % 2 == 0 or it == 1:
            with torch.no_grad():
                ev = 1 - (RET - net.vf(O).flatten()).var() / RET.var()
            print(
                f"iter {it:3d} updates {updates:4d} loss {loss.item():.4f} pg {pg.item():+.4f} value_loss {vf_loss.item():.3f} "
                f"reward {mean_r:+.3f} explained_var {ev.item():+.2f} t {time.time() - t0:.1f}s",
                flush=True,
            )


main()
