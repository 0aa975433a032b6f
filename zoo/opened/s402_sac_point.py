# expect: sick
# symptom: the return improves, then actor and critic loss become NaN all at once after some 440 updates
# axis: loss
# cause: the log-probability of the tanh-squashed action uses log(1 - a^2) without a floor, which is log(0) (gradient 0/0) as soon as an action saturates at exactly +-1 in float32
# says: \blog ?\(? ?(of )?(0|zero)\b|log\(1|tanh|squash|satur.*action|action.*satur|(missing|without|no).?(eps|epsilon|floor).{0,15}log|\blog\b.*(unsafe|unstable|underflow|eps|zero|infin)|log.?prob.*(infin|zero|satur|unsafe|jacobian)
# onset_step: 436
# fix: use the stable form 2*(log 2 - u - softplus(-2u)) for log(1 - tanh(u)^2)
# mended: actor and critic losses stay finite for all 700 updates and the evaluated return goes from -76 to about -18 (bare: NaN)
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

N_ENVS, HORIZON, BATCH, UPDATES = 16, 40, 128, 700
GAMMA, TAU = 0.95, 0.01
LR, ALPHA = 1e-3, 0.01


class PointMass:
    """Drive a heavy mass on a line to the origin with a bounded force."""

    def __init__(self, n):
        self.n = n
        self.state = self._fresh(n)
        self.t = torch.randint(0, HORIZON, (n,))

    def _fresh(self, n):
        return torch.stack([torch.rand(n) * 6 - 3, torch.zeros(n)], 1)

    def step(self, a):
        pos, vel = self.state[:, 0], self.state[:, 1]
        vel = 0.98 * vel + 0.08 * a[:, 0]
        pos = (pos + 0.25 * vel).clamp(-4, 4)
        nxt = torch.stack([pos, vel], 1)
        reward = -pos.abs()
        self.t += 1
        over = self.t >= HORIZON
        self.state = torch.where(over[:, None], self._fresh(self.n), nxt)
        self.t = torch.where(over, torch.zeros_like(self.t), self.t)
        return nxt, reward


def mlp(i, o, h=64):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2, 2)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, -1)
        std = log_std.clamp(-5, 1).exp()
        u = mean + std * torch.randn_like(mean)
        a = torch.tanh(u)
        if MENDED:
            corr = 2 * (math.log(2) - u - F.softplus(-2 * u))
        else:
            corr = torch.log(1 - a.pow(2))
        logp = -0.5 * ((u - mean) / std).pow(2) - std.log() - 0.5 * math.log(2 * math.pi) - corr
        return a, logp.sum(-1), torch.tanh(mean)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(3, 1), mlp(3, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


def evaluate(actor):
    g = torch.Generator().manual_seed(99)
    s = torch.stack([torch.rand(64, generator=g) * 6 - 3, torch.zeros(64)], 1)
    env = PointMass(64)
    env.state, env.t = s, torch.zeros(64, dtype=torch.long)
    total = 0.0
    with torch.no_grad():
        for _ in range(HORIZON - 1):
            _, r = env.step(actor(env.state)[2])
            total += r.mean().item()
    return total


actor, critic, target = Actor(), Critic(), Critic()
target.load_state_dict(critic.state_dict())
opt_a = torch.optim.Adam(actor.parameters(), lr=LR)
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3)

env = PointMass(N_ENVS)
S, A, R, S2 = [], [], [], []


def interact(random_action):
    s = env.state
    with torch.no_grad():
        a = torch.rand(N_ENVS, 1) * 2 - 1 if random_action else actor(s)[0]
    s2, r = env.step(a)
    S.append(s)
    A.append(a)
    R.append(r)
    S2.append(s2)


for _ in range(120):
    interact(True)

for upd in range(1, UPDATES + 1):
    for _ in range(2):
        interact(False)
    t = torch.randint(0, len(S), (BATCH,))
    e = torch.randint(0, N_ENVS, (BATCH,))
    s = torch.stack([S[i][j] for i, j in zip(t.tolist(), e.tolist())])
    a = torch.stack([A[i][j] for i, j in zip(t.tolist(), e.tolist())])
    r = torch.stack([R[i][j] for i, j in zip(t.tolist(), e.tolist())])
    s2 = torch.stack([S2[i][j] for i, j in zip(t.tolist(), e.tolist())])

    with torch.no_grad():
        a2, lp2, _ = actor(s2)
        y = r + GAMMA * (torch.min(*target(s2, a2)) - ALPHA * lp2)
    q1, q2 = critic(s, a)
    loss_c = F.mse_loss(q1, y) + F.mse_loss(q2, y)
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()

    pa, lp, _ = actor(s)
    loss_a = (ALPHA * lp - torch.min(*critic(s, pa))).mean()
    opt_a.zero_grad()
    loss_a.backward()
    opt_a.step()

    with torch.no_grad():
        for p, pt in zip(critic.parameters(), target.parameters()):
            pt.lerp_(p, TAU)
    if upd % 50 == 0 or upd == 1:
        print(f"update {upd:4d}  critic {loss_c.item():.4f}  actor {loss_a.item():.4f}  return {evaluate(actor):.2f}")

print(f"final return {evaluate(actor):.3f}")
