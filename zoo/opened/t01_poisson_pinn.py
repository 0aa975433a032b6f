# expect: sick
# symptom: the boundary loss goes to zero at once, the PDE residual stays where it was at step 0 for the whole run and the solution is flat (relative error about 1)
# axis: model
# cause: nn.ReLU activations in a network whose loss takes second derivatives (Laplacian): the second derivative of a piecewise linear network is zero everywhere, so the PDE residual gives no gradient
# says: (relu|piecewise.?linear|activation|non.?smooth|not (twice|smooth)|second.{0,12}(derivative|order)|laplacian|hessian|curvature).{0,160}(zero|vanish|smooth|tanh|sin|silu|gelu|softplus|swish|twice)
# onset_step: 0
# fix: use a smooth activation (tanh, sin, SiLU) in the network
# mended: Tanh instead of ReLU
"""Physics-informed network for -lap(u) = f on the unit square, u = 0 on the boundary."""

import math
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"

WIDTH, DEPTH = 48, 3
STEPS = 350
N_IN, N_BC = 384, 128


def exact(xy):
    return torch.sin(math.pi * xy[:, :1]) * torch.sin(math.pi * xy[:, 1:])


def source(xy):
    return 2 * math.pi**2 * exact(xy)


def make_net():
    act = nn.Tanh if MENDED else nn.ReLU
    layers, d = [], 2
    for _ in range(DEPTH):
        layers += [nn.Linear(d, WIDTH), act()]
        d = WIDTH
    layers.append(nn.Linear(d, 1))
    net = nn.Sequential(*layers)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            nn.init.zeros_(m.bias)
    return net


def laplacian(u, xy):
    du = torch.autograd.grad(u, xy, torch.ones_like(u), create_graph=True)[0]
    u_xx = torch.autograd.grad(du[:, 0].sum(), xy, create_graph=True)[0][:, 0:1]
    u_yy = torch.autograd.grad(du[:, 1].sum(), xy, create_graph=True)[0][:, 1:2]
    return u_xx + u_yy


def interior(n):
    return torch.rand(n, 2).requires_grad_(True)


def boundary(n):
    t = torch.rand(n, 2)
    side = torch.randint(0, 4, (n,))
    t[side == 0, 0] = 0.0
    t[side == 1, 0] = 1.0
    t[side == 2, 1] = 0.0
    t[side == 3, 1] = 1.0
    return t


def main():
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    grid = torch.cartesian_prod(torch.linspace(0, 1, 33), torch.linspace(0, 1, 33))
    for step in range(STEPS):
        xy = interior(N_IN)
        res = laplacian(net(xy), xy) + source(xy)
        loss_pde = (res**2).mean()
        loss_bc = (net(boundary(N_BC)) ** 2).mean()
        loss = loss_pde + 50.0 * loss_bc
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            with torch.no_grad():
                err = (net(grid) - exact(grid)).norm() / exact(grid).norm()
            print(
                f"step {step:4d}  loss {loss.item():.4f}  pde {loss_pde.item():.4f}  bc {loss_bc.item():.5f}  rel_err {err.item():.4f}"
            )


if __name__ == "__main__":
    main()
