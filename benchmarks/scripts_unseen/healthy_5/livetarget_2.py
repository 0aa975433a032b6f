# expect: healthy
# fault: none, the actor rightly gets gradient through reward, model and value of the next state; the critic's own regression target is taken under no_grad
# onset_step: none
# says: (?!)
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(71)
GAMMA, TAU = 0.8, 0.2


def mlp(i, o, h=64):
    return nn.Sequential(nn.Linear(i, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, o))


def world(s, a):
    pos, vel = s[:, :1], s[:, 1:]
    vel = 0.9 * vel + 0.3 * a - 0.1 * torch.sin(pos)
    return torch.cat([pos + 0.3 * vel, vel], dim=1)


def reward(s, a):
    return -(s[:, 0] ** 2 + 0.1 * s[:, 1] ** 2 + 0.05 * a[:, 0] ** 2)


actor, critic, dynamics = mlp(2, 1), mlp(2, 1), mlp(3, 2)
slow = copy.deepcopy(critic).requires_grad_(False)
opt_actor = torch.optim.Adam(actor.parameters(), lr=5e-4)
opt_critic = torch.optim.Adam(critic.parameters(), lr=3e-3)
opt_dyn = torch.optim.Adam(dynamics.parameters(), lr=3e-3)


def policy(s):
    return torch.tanh(actor(s)) * 2


def imagine(s, a):
    return s + dynamics(torch.cat([s, a], dim=1))


def score(n=64, steps=30):
    with torch.no_grad():
        s, total = torch.randn(n, 2), 0.0
        for _ in range(steps):
            a = policy(s)
            total += reward(s, a).mean().item()
            s = world(s, a)
    return total / steps


for it in range(1, 101):
    s = torch.randn(192, 2)
    explore = (policy(s) + 0.5 * torch.randn(192, 1)).detach()
    loss_dyn = F.mse_loss(imagine(s, explore), world(s, explore))
    opt_dyn.zero_grad()
    loss_dyn.backward()
    opt_dyn.step()

    with torch.no_grad():
        a = policy(s)
        target = reward(s, a) + GAMMA * slow(imagine(s, a)).squeeze(-1)
    loss_v = F.mse_loss(critic(s).squeeze(-1), target)
    opt_critic.zero_grad()
    loss_v.backward()
    opt_critic.step()

    a = policy(s)
    target = reward(s, a) + GAMMA * critic(imagine(s, a)).squeeze(-1)
    loss_pi = -target.mean()
    opt_actor.zero_grad()
    loss_pi.backward()
    opt_actor.step()

    with torch.no_grad():
        for p, q in zip(critic.parameters(), slow.parameters()):
            q.lerp_(p, TAU)
    if it % 20 == 0:
        print(f"{it} dyn {loss_dyn.item():.5f} v {loss_v.item():.4f} pi {loss_pi.item():.4f} score {score():.4f}")
