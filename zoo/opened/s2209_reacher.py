# expect: sick
# symptom: temperature alpha grows exponentially, Q values and critic loss blow up, and the return stays at the level of random actions
# axis: loss
# cause: the SAC target entropy is given the wrong sign, +action_dim instead of -action_dim, which a tanh policy cannot reach, so the entropy temperature alpha grows without bound and swamps the reward
# says: target.{0,3}entropy.{0,160}(sign|positive|negative|minus|negat|unreach|unattain|can.?t|cannot|impossible|too (high|large)|above|exceed|never|infeasib|\+ ?(act|dim|2))|(sign|positive|negative|minus|negat|unreach|unattain|cannot|impossible|too (high|large)|above|exceed|infeasib).{0,120}(target.{0,3}entropy|entropy target)|entropy target.{0,160}(sign|positive|negative|minus|unreach|unattain|cannot|impossible|too (high|large)|exceed)
# onset_step: 1
# fix: set target_entropy = -act_dim
# mended: yes
"""Soft actor-critic with automatic temperature on a vectorised planar reacher."""

import copy
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
gen = torch.Generator().manual_seed(6)


class PlanarReach:
    """Point mass in the plane, force control, dense distance cost."""

    obs_dim, act_dim, horizon = 6, 2, 40

    def __init__(self, n):
        self.n = n
        self.pos, self.vel, self.goal = (torch.zeros(n, 2) for _ in range(3))
        self.t = torch.randint(0, self.horizon, (n,), generator=gen)
        self._reset(torch.ones(n, dtype=torch.bool))

    def _reset(self, m):
        k = int(m.sum())
        self.pos[m] = torch.rand(k, 2, generator=gen) * 2 - 1
        self.goal[m] = torch.rand(k, 2, generator=gen) * 2 - 1
        self.vel[m] = 0.0

    def obs(self):
        return torch.cat([self.pos, self.vel, self.goal], 1).clone()

    def step(self, a):
        self.vel = 0.8 * self.vel + 0.2 * a
        self.pos = (self.pos + 0.35 * self.vel).clamp(-2, 2)
        rew = -(self.pos - self.goal).norm(dim=1) - 0.02 * a.pow(2).sum(1)
        nxt = self.obs()
        self.t += 1
        over = self.t >= self.horizon
        if over.any():
            self._reset(over)
            self.t[over] = 0
        return nxt, rew


def mlp(i, o, h=96):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, od, ad):
        super().__init__()
        self.net = mlp(od, 2 * ad)

    def forward(self, o):
        mu, log_std = self.net(o).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        u = mu + std * torch.randn_like(mu)
        logp = (-0.5 * ((u - mu) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        logp = logp - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        return torch.tanh(u), logp, torch.tanh(mu)


class Replay:
    def __init__(self, cap, od, ad):
        self.o, self.o2 = torch.zeros(cap, od), torch.zeros(cap, od)
        self.a, self.r = torch.zeros(cap, ad), torch.zeros(cap)
        self.cap, self.ptr, self.size = cap, 0, 0

    def add(self, o, a, r, o2):
        idx = (torch.arange(len(o)) + self.ptr) % self.cap
        self.o[idx], self.a[idx], self.r[idx], self.o2[idx] = o, a, r, o2
        self.ptr = (self.ptr + len(o)) % self.cap
        self.size = min(self.cap, self.size + len(o))

    def sample(self, n):
        i = torch.randint(0, self.size, (n,))
        return self.o[i], self.a[i], self.r[i], self.o2[i]


@torch.no_grad()
def evaluate(actor, n=64):
    env = PlanarReach(n)
    env.t.zero_()
    total = torch.zeros(n)
    for _ in range(env.horizon - 1):
        _, r = env.step(actor(env.obs())[2])
        total += r
    return total.mean().item()


env = PlanarReach(16)
od, ad = env.obs_dim, env.act_dim
actor = Actor(od, ad)
q1, q2 = mlp(od + ad, 1), mlp(od + ad, 1)
q1_t, q2_t = copy.deepcopy(q1), copy.deepcopy(q2)
log_alpha = torch.tensor(math.log(0.1), requires_grad=True)
act_dim = ad
target_entropy = -float(act_dim) if os.environ.get("MENDED") == "1" else float(act_dim)

opt_pi = torch.optim.Adam(actor.parameters(), lr=1e-3)
opt_q = torch.optim.Adam(list(q1.parameters()) + list(q2.parameters()), lr=1e-3)
opt_alpha = torch.optim.Adam([log_alpha], lr=1e-2)
buf, gamma, tau = Replay(20000, od, ad), 0.95, 0.01

o = env.obs()
for _ in range(60):
    a = torch.rand(env.n, ad) * 2 - 1
    o2, r = env.step(a)
    buf.add(o, a, r, o2)
    o = env.obs()

for step in range(1, 901):
    with torch.no_grad():
        a = actor(o)[0]
    o2, r = env.step(a)
    buf.add(o, a, r, o2)
    o = env.obs()

    s, a, r, s2 = buf.sample(256)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        a2, lp2, _ = actor(s2)
        x2 = torch.cat([s2, a2], 1)
        y = r + gamma * (torch.min(q1_t(x2), q2_t(x2)).squeeze(1) - alpha * lp2)
    x = torch.cat([s, a], 1)
    q_loss = F.mse_loss(q1(x).squeeze(1), y) + F.mse_loss(q2(x).squeeze(1), y)
    opt_q.zero_grad()
    q_loss.backward()
    opt_q.step()

    pi, lp, _ = actor(s)
    xp = torch.cat([s, pi], 1)
    pi_loss = (alpha * lp - torch.min(q1(xp), q2(xp)).squeeze(1)).mean()
    opt_pi.zero_grad()
    pi_loss.backward()
    opt_pi.step()

    alpha_loss = -(log_alpha * (lp + target_entropy).detach()).mean()
    opt_alpha.zero_grad()
    alpha_loss.backward()
    opt_alpha.step()

    with torch.no_grad():
        for net, tgt in ((q1, q1_t), (q2, q2_t)):
            for p, pt in zip(net.parameters(), tgt.parameters()):
                pt.lerp_(p, tau)

    if step % 50 == 0:
        print(
            f"step {step} q_loss {q_loss.item():.4g} pi_loss {pi_loss.item():.4g} "
            f"alpha {log_alpha.exp().item():.4g} entropy {-lp.mean().item():.2f} "
            f"eval_return {evaluate(actor):.2f}"
        )
