# expect: healthy
# symptom: resembles a loop in which backward was forgotten: no loss.backward anywhere, gradients are written by hand and the printed cost is noisy
# axis: optimizer
"""Evolution strategies for a cart-pole stabiliser (antithetic pairs, rank shaping, Adam on the estimate)."""

import time

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)
torch.manual_seed(0)
torch.set_grad_enabled(False)

PAIRS, ROLLOUT, DT = 32, 100, 0.03
GENERATIONS = 220
SIGMA0, LR = 0.3, 0.08


class Controller(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.a = nn.Linear(5, hidden)
        self.b = nn.Linear(hidden, 1)

    def forward(self, o):
        return torch.tanh(self.b(torch.tanh(self.a(o))))


def sense(s):
    return torch.stack([s[..., 0], s[..., 1] * 0.5, s[..., 2].cos(), 2 * s[..., 2].sin(), s[..., 3] * 0.5], -1)


def dynamics(s, force):
    x, xd, th, thd = s.unbind(-1)
    sin, cos = th.sin(), th.cos()
    mass, pole, length = 1.0, 0.2, 0.6
    temp = (force + pole * length * thd**2 * sin) / (mass + pole)
    acc = (9.8 * sin - cos * temp) / (length * (4 / 3 - pole * cos**2 / (mass + pole)))
    xacc = temp - pole * length * acc * cos / (mass + pole)
    xd, thd = xd + DT * xacc, (thd + DT * acc).clamp(-12, 12)
    return torch.stack([x + DT * xd, xd, th + DT * thd, thd], -1)


def starts(n, gen):
    s = torch.zeros(n, 4)
    s[:, 0] = 0.2 * torch.randn(n, generator=gen)
    s[:, 2] = 0.15 * torch.randn(n, generator=gen)
    return s


class Population:
    def __init__(self, policy):
        self.policy = policy
        self.names = [n for n, _ in policy.named_parameters()]
        self.shapes = [p.shape for p in policy.parameters()]
        self.sizes = [p.numel() for p in policy.parameters()]
        self.act = vmap(self._one, in_dims=(0, 0))

    def _one(self, params, obs):
        return functional_call(self.policy, params, (obs,))

    def unflatten(self, flat):
        parts = flat.split(self.sizes, dim=1)
        return {n: p.reshape(-1, *s) for n, p, s in zip(self.names, parts, self.shapes)}

    def cost(self, flat, init):
        """Mean cost of every member over the same set of initial states."""
        params = self.unflatten(flat)
        s = init.expand(flat.shape[0], *init.shape).clone()
        total = torch.zeros(s.shape[:-1])
        for t in range(ROLLOUT):
            u = 14.0 * self.act(params, sense(s)).squeeze(-1)
            s = dynamics(s, u)
            total += (1 - s[..., 2].cos()) + 0.1 * s[..., 0].abs().clamp(max=10) + 0.002 * s[..., 3] ** 2
        return total.mean(-1) / ROLLOUT


def centred_ranks(x):
    r = x.argsort().argsort().float()
    return r / (len(x) - 1) - 0.5


policy = Controller()
pop = Population(policy)
theta = parameters_to_vector(policy.parameters())
opt = torch.optim.Adam(policy.parameters(), lr=LR, betas=(0.9, 0.99))
gen = torch.Generator().manual_seed(12)
exam = starts(64, torch.Generator().manual_seed(777))
began = time.time()

for generation in range(1, GENERATIONS + 1):
    sigma = SIGMA0 * (1 - 0.6 * generation / GENERATIONS)
    noise = torch.randn(PAIRS, theta.numel(), generator=gen)
    theta = parameters_to_vector(policy.parameters())
    members = torch.cat([theta + sigma * noise, theta - sigma * noise])
    cost = pop.cost(members, starts(6, gen))
    weight = centred_ranks(cost)
    slope = (weight[:PAIRS] - weight[PAIRS:]) @ noise / (PAIRS * sigma)
    for p, g in zip(policy.parameters(), slope.split(pop.sizes)):
        p.grad = g.view_as(p).clone()
    opt.step()
    for group in opt.param_groups:
        group["lr"] = LR * (1 - 0.9 * generation / GENERATIONS)
    if generation % 10 == 0 or generation == 1:
        centre = pop.cost(parameters_to_vector(policy.parameters())[None], exam).item()
        print(
            f"gen {generation:4d} population cost {cost.mean():.4f} best {cost.min():.4f} "
            f"centre on exam starts {centre:.4f} ({time.time() - began:.0f}s)",
            flush=True,
        )
