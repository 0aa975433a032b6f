# expect: sick
# symptom: critic loss and Q values grow without bound, the return stays poor and the policy stays random
# axis: loss
# cause: The target entropy of the automatic temperature tuning has the wrong sign (+action_dim instead of -action_dim); a tanh-squashed action in [-1,1] can never reach that entropy, so alpha keeps growing exponentially and the entropy bonus swamps the reward.
# says: (target.{0,3}entropy|entropy.{0,3}target|(desired|target|wanted|goal|required) .{0,20}entropy|entropy.{0,120}(unreachable|unattainable|never (be )?reach|impossible|not (attainable|achievable|reachable)|cannot|can never|\+?act(ion)?_dim)|(alpha|temperature).{0,120}(target|unreachable|unattainable))
# onset_step: 1
# fix: target_entropy = -act_dim
# mended: yes
"""Soft actor-critic with twin critics on a vectorised point-mass regulator."""

import os
import copy

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)


class PointMass:
    """n parallel carts on a line in 2 axes; push them to the origin."""

    obs_dim, act_dim, horizon = 4, 2, 60

    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.pos = torch.empty(self.n, 2).uniform_(-1.5, 1.5)
        self.vel = torch.zeros(self.n, 2)
        self.t = 0
        return self.obs()

    def obs(self):
        return torch.cat([self.pos, self.vel], 1)

    def step(self, a):
        r = -(self.pos.pow(2).sum(1) + 0.1 * self.vel.pow(2).sum(1) + 0.02 * a.pow(2).sum(1))
        self.vel = (self.vel + 0.15 * a + 0.01 * torch.randn_like(a)) * 0.97
        self.pos = (self.pos + 0.2 * self.vel).clamp(-4, 4)
        self.t += 1
        return self.obs(), r, self.t >= self.horizon


def mlp(i, o, h=96):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, o, a):
        super().__init__()
        self.net = mlp(o, 2 * a)

    def forward(self, s, greedy=False):
        mu, log_std = self.net(s).chunk(2, -1)
        if greedy:
            return torch.tanh(mu), None
        log_std = log_std.clamp(-5, 2)
        dist = torch.distributions.Normal(mu, log_std.exp())
        u = dist.rsample()
        logp = dist.log_prob(u).sum(-1)
        logp = logp - (2 * (0.6931472 - u - nn.functional.softplus(-2 * u))).sum(-1)
        return torch.tanh(u), logp


class Critic(nn.Module):
    def __init__(self, o, a):
        super().__init__()
        self.q1, self.q2 = mlp(o + a, 1), mlp(o + a, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], 1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class Replay:
    def __init__(self, cap, o, a):
        self.s, self.s2 = torch.zeros(cap, o), torch.zeros(cap, o)
        self.a, self.r = torch.zeros(cap, a), torch.zeros(cap)
        self.cap, self.i, self.full = cap, 0, False

    def add(self, s, a, r, s2):
        n = s.size(0)
        idx = (torch.arange(n) + self.i) % self.cap
        self.s[idx], self.a[idx], self.r[idx], self.s2[idx] = s, a, r, s2
        self.full |= self.i + n >= self.cap
        self.i = (self.i + n) % self.cap

    def sample(self, b):
        j = torch.randint(0, self.cap if self.full else self.i, (b,))
        return self.s[j], self.a[j], self.r[j], self.s2[j]


@torch.no_grad()
def evaluate(actor, n=64):
    env = PointMass(n)
    s, ret = env.obs(), torch.zeros(n)
    done = False
    while not done:
        s, r, done = env.step(actor(s, greedy=True)[0])
        ret += r
    return ret.mean().item()


def main(updates=900, gamma=0.97, tau=0.02, batch=224):
    env = PointMass(8)
    o, a = env.obs_dim, env.act_dim
    actor, critic = Actor(o, a), Critic(o, a)
    target = copy.deepcopy(critic).requires_grad_(False)
    log_alpha = torch.tensor(-1.5, requires_grad=True)
    target_entropy = float(a)
    if os.environ.get("MENDED") == "1":
        target_entropy = -float(a)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=1.5e-3)
    opt_critic = torch.optim.Adam(critic.parameters(), lr=1.5e-3)
    opt_alpha = torch.optim.Adam([log_alpha], lr=1e-2)
    buf = Replay(20000, o, a)

    s = env.reset()
    for _ in range(60):
        act = torch.rand(env.n, a) * 2 - 1
        s2, r, done = env.step(act)
        buf.add(s, act, r, s2)
        s = env.reset() if done else s2

    print(f"start  return {evaluate(actor):.1f}")
    for step in range(1, updates + 1):
        with torch.no_grad():
            act, _ = actor(s)
        s2, r, done = env.step(act)
        buf.add(s, act, r, s2)
        s = env.reset() if done else s2

        bs, ba, br, bs2 = buf.sample(batch)
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            na, nlogp = actor(bs2)
            y = br + gamma * (torch.min(*target(bs2, na)) - alpha * nlogp)
        q1, q2 = critic(bs, ba)
        q_loss = (q1 - y).pow(2).mean() + (q2 - y).pow(2).mean()
        opt_critic.zero_grad()
        q_loss.backward()
        opt_critic.step()

        pa, logp = actor(bs)
        pi_loss = (alpha * logp - torch.min(*critic(bs, pa))).mean()
        opt_actor.zero_grad()
        pi_loss.backward()
        opt_actor.step()

        alpha_loss = -(log_alpha * (logp.detach() + target_entropy)).mean()
        opt_alpha.zero_grad()
        alpha_loss.backward()
        opt_alpha.step()

        with torch.no_grad():
            for p, tp in zip(critic.parameters(), target.parameters()):
                tp.lerp_(p, tau)
        if step % 50 == 0:
            print(
                f"update {step:4d}  loss {q_loss.item():10.3f}  q {q1.mean().item():9.2f}"
                f"  temp {log_alpha.exp().item():8.3f}  return {evaluate(actor):8.1f}"
            )


if __name__ == "__main__":
    main()
