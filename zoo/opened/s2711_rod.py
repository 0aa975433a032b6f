# expect: sick
# symptom: the Adam phase converges; after the switch to L-BFGS the loss blows up to huge or non-finite values instead of being polished
# axis: optimizer
# cause: The L-BFGS closure draws new random collocation points at every call, so the objective changes between evaluations and the curvature pairs (gradient differences) are noise, which yields wild steps.
# says: (closure|l-?bfgs|curvature|line search|quasi-newton)[\s\S]*(resampl|re-sampl|re-?draw|fresh|random|stochastic|nois[ey]|changing|not (fixed|determin)|inconsisten|mini-?batch|non-?determin|draw|(new|different) (collocation|points?|batch|sample|set|objective|loss|data)|(each|every) (function )?(call|evaluation))|(resampl|re-?draw|draw|fresh|random|stochastic)[\s\S]*(closure|l-?bfgs|curvature|quasi-newton)
# onset_step: 401
# fix: draw the points once before each L-BFGS step (or keep one fixed set), outside the closure
# mended: yes
"""Physics-informed fit of a reaction-diffusion rod: u_t = D u_xx - k u with a warm pulse.

Adam first, then L-BFGS to polish, as in most PINN papers.
"""

import os

import numpy as np
import torch
from torch import nn
from torch.autograd import grad

torch.set_num_threads(1)
torch.manual_seed(17)
np.random.seed(17)

D, K = 0.1, 0.5
N_ADAM, N_LBFGS = 400, 60
n_inside, n_edge, n_start = 400, 80, 80


class Rod(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        layers += [nn.Linear(width, 1)]
        self.f = nn.Sequential(*layers)
        for m in self.f:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.f(torch.cat([2 * x - 1, 2 * t - 1], 1))


def exact(x, t):
    pi = np.pi
    a = torch.sin(pi * x) * torch.exp(-(D * pi**2 + K) * t)
    b = 0.5 * torch.sin(3 * pi * x) * torch.exp(-(D * 9 * pi**2 + K) * t)
    return a + b


def draw():
    inside = torch.rand(n_inside, 2)
    edge_x = torch.randint(0, 2, (n_edge, 1)).float()
    edge_t = torch.rand(n_edge, 1)
    start_x = torch.rand(n_start, 1)
    return inside, edge_x, edge_t, start_x


def objective(net, pts):
    inside, edge_x, edge_t, start_x = pts
    x = inside[:, :1].clone().requires_grad_(True)
    t = inside[:, 1:].clone().requires_grad_(True)
    u = net(x, t)
    ones = torch.ones_like(u)
    u_x, u_t = grad(u, (x, t), ones, create_graph=True)
    u_xx = grad(u_x, x, ones, create_graph=True)[0]
    pde = (u_t - D * u_xx + K * u).pow(2).mean()
    bc = net(edge_x, edge_t).pow(2).mean()
    zero = torch.zeros_like(start_x)
    ic = (net(start_x, zero) - exact(start_x, zero)).pow(2).mean()
    return pde + 10 * bc + 10 * ic


@torch.no_grad()
def rel_error(net):
    g = torch.linspace(0, 1, 41)
    xx, tt = torch.meshgrid(g, g, indexing="ij")
    x, t = xx.reshape(-1, 1), tt.reshape(-1, 1)
    ref = exact(x, t)
    return ((net(x, t) - ref).norm() / ref.norm()).item()


net = Rod()
adam = torch.optim.Adam(net.parameters(), lr=3e-3)
for it in range(N_ADAM):
    loss = objective(net, draw())
    adam.zero_grad()
    loss.backward()
    adam.step()
    if it % 40 == 0 or it == N_ADAM - 1:
        print(f"adam  {it:4d}  loss {loss.item():.5f}  rel.err {rel_error(net):.4f}", flush=True)

polish = torch.optim.LBFGS(
    net.parameters(), lr=0.7, max_iter=10, history_size=30, tolerance_grad=1e-9, tolerance_change=1e-12
)
fixed = draw() if os.environ.get("MENDED") == "1" else None
for it in range(N_LBFGS):

    def closure():
        polish.zero_grad()
        value = objective(net, fixed if fixed is not None else draw())
        value.backward()
        return value

    loss = polish.step(closure)
    if it % 5 == 0 or it == N_LBFGS - 1:
        print(f"lbfgs {it:4d}  loss {loss.item():.6f}  rel.err {rel_error(net):.4f}", flush=True)
