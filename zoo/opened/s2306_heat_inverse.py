# expect: sick
# symptom: the loss falls well under Adam, then in the L-BFGS stage it stalls, shoots up by many orders of magnitude and ends in NaN
# axis: optimizer
# cause: The L-BFGS closure draws fresh random collocation points at every call, so the objective is stochastic, the gradient differences in the curvature history are inconsistent and the quasi-Newton steps blow up.
# says: (l-?bfgs|closure|quasi.?newton|curvature|hessian|line.?search).{0,250}(random|resampl|re-?draw|fresh|new|stochastic|differ|noisy|nois|chang|deterministic|inconsisten|batch)|(random|resampl|redraw|fresh|stochastic|noisy|nois|inconsisten|deterministic).{0,250}(l-?bfgs|closure|quasi.?newton|curvature|hessian|line.?search)
# onset_step: 251
# fix: draw the collocation points once for the L-BFGS stage, outside the closure, and reuse them
# mended: yes
"""Physics-informed network for the 1-D heat equation with a source.

    u_t = nu * u_xx + f(x, t),   u(x, 0) = sin(pi x),   u(0, t) = u(1, t) = 0

The exact solution is known, so the relative error is reported along the way.
"""

import os
from math import pi

import torch

torch.set_num_threads(1)
torch.set_default_dtype(torch.float32)
rng = torch.Generator().manual_seed(8)

NU = 0.1
N_IN, N_BC, N_IC = 96, 32, 32
ADAM_STEPS = 250
OUTER = 150


def exact(x, t):
    return torch.sin(pi * x) * torch.exp(-t) + 0.3 * torch.sin(2 * pi * x) * torch.sin(pi * t)


def source(x, t):
    a = torch.sin(pi * x) * torch.exp(-t) * (-1.0 + NU * pi**2)
    b = 0.3 * torch.sin(2 * pi * x) * (pi * torch.cos(pi * t) + NU * 4 * pi**2 * torch.sin(pi * t))
    return a + b


def glorot_tanh(sizes, seed):
    torch.manual_seed(seed)
    mods = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        lin = torch.nn.Linear(a, b)
        torch.nn.init.xavier_normal_(lin.weight)
        torch.nn.init.zeros_(lin.bias)
        mods.append(lin)
        if i < len(sizes) - 2:
            mods.append(torch.nn.Tanh())
    return torch.nn.Sequential(*mods)


class HeatProblem:
    def __init__(self, net):
        self.net = net

    def u(self, x, t):
        return self.net(torch.cat([2 * x - 1, 2 * t - 1], 1))

    def points(self):
        xi = torch.rand(N_IN, 1, generator=rng)
        ti = torch.rand(N_IN, 1, generator=rng)
        xb = torch.randint(0, 2, (N_BC, 1), generator=rng).float()
        tb = torch.rand(N_BC, 1, generator=rng)
        x0 = torch.rand(N_IC, 1, generator=rng)
        return xi, ti, xb, tb, x0

    def residual(self, x, t):
        x = x.clone().requires_grad_(True)
        t = t.clone().requires_grad_(True)
        u = self.u(x, t)
        one = torch.ones_like(u)
        ux, ut = torch.autograd.grad(u, (x, t), one, create_graph=True)
        (uxx,) = torch.autograd.grad(ux, x, one, create_graph=True)
        return ut - NU * uxx - source(x, t)

    def loss(self, pts):
        xi, ti, xb, tb, x0 = pts
        pde = self.residual(xi, ti).square().mean()
        bc = self.u(xb, tb).square().mean()
        z = torch.zeros_like(x0)
        ic = (self.u(x0, z) - exact(x0, z)).square().mean()
        return pde + 10.0 * bc + 10.0 * ic


@torch.no_grad()
def relative_l2(problem):
    g = torch.linspace(0, 1, 41)
    x, t = [v.reshape(-1, 1) for v in torch.meshgrid(g, g, indexing="ij")]
    ref = exact(x, t)
    return ((problem.u(x, t) - ref).norm() / ref.norm()).item()


def solve():
    problem = HeatProblem(glorot_tanh([2, 32, 32, 32, 1], seed=1))
    print(f"start: rel. error {relative_l2(problem):.3f}")

    # stage 1: get into the basin
    adam = torch.optim.Adam(problem.net.parameters(), lr=3e-3)
    for k in range(1, ADAM_STEPS + 1):
        adam.zero_grad()
        value = problem.loss(problem.points())
        value.backward()
        adam.step()
        if k % 25 == 0:
            print(f"adam  {k:4d}  loss {value.item():.4e}  rel. error {relative_l2(problem):.4f}")

    # stage 2: polish
    opt = torch.optim.LBFGS(
        problem.net.parameters(), lr=1.0, max_iter=20, history_size=50, tolerance_grad=0.0, tolerance_change=0.0
    )
    mended = os.environ.get("MENDED") == "1"
    fixed = problem.points() if mended else None

    def closure():
        opt.zero_grad()
        pts = fixed if mended else problem.points()
        value = problem.loss(pts)
        value.backward()
        return value

    for k in range(1, OUTER + 1):
        value = opt.step(closure).item()
        if k % 10 == 0 or k == 1:
            print(f"lbfgs {k:4d}  loss {value:.4e}  rel. error {relative_l2(problem):.4f}")


if __name__ == "__main__":
    solve()
