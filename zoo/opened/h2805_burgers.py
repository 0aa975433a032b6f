# expect: healthy
# symptom: the loss is evaluated several times per step, jumps when the points are resampled and the optimizer changes half way, resembles a broken training loop
# axis: optimizer
"""Physics-informed network for the viscous Burgers equation u_t + u u_x = nu u_xx.

Adam with resampled collocation points first, then L-BFGS on a fixed set.  The
reference solution is computed by a finite-difference scheme.
"""

import argparse
import math
import time

import numpy as np
import torch

torch.set_num_threads(1)
torch.set_default_dtype(torch.float32)

NU = 0.05


def reference(nx=201, t_end=0.8):
    x = np.linspace(-1, 1, nx)
    dx = x[1] - x[0]
    dt = 0.2 * min(dx * dx / (2 * NU), dx)
    n = int(math.ceil(t_end / dt))
    dt = t_end / n
    u = -np.sin(np.pi * x)
    for _ in range(n):
        lap = (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2
        flux = (u[2:] ** 2 - u[:-2] ** 2) / (4 * dx)
        u[1:-1] = u[1:-1] + dt * (NU * lap - flux)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(u, dtype=torch.float32)


def network(width, depth):
    layers, n = [], 2
    for _ in range(depth):
        lin = torch.nn.Linear(n, width)
        torch.nn.init.xavier_normal_(lin.weight)
        torch.nn.init.zeros_(lin.bias)
        layers += [lin, torch.nn.Tanh()]
        n = width
    layers.append(torch.nn.Linear(n, 1))
    return torch.nn.Sequential(*layers)


def u_of(net, x, t):
    return net(torch.cat([x, t], 1))


def draw(n, t_end):
    x = torch.rand(n, 1) * 2 - 1
    x[: n // 4] = 0.2 * x[: n // 4]
    return x.requires_grad_(True), (torch.rand(n, 1) * t_end).requires_grad_(True)


def grad(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def objective(net, pts, x0, tb):
    x, t = pts
    u = u_of(net, x, t)
    u_x = grad(u, x)
    res = grad(u, t) + u * u_x - NU * grad(u_x, x)
    start = u_of(net, x0, torch.zeros_like(x0)) + torch.sin(math.pi * x0)
    left = u_of(net, -torch.ones_like(tb), tb)
    right = u_of(net, torch.ones_like(tb), tb)
    return res.pow(2).mean() + 10 * start.pow(2).mean() + 10 * (left.pow(2).mean() + right.pow(2).mean())


def rel_error(net, x, u, t_end):
    with torch.no_grad():
        p = u_of(net, x[:, None], torch.full((len(x), 1), t_end))[:, 0]
    return ((p - u).norm() / u.norm()).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--adam-steps", type=int, default=600)
    ap.add_argument("--lbfgs-steps", type=int, default=60)
    ap.add_argument("--points", type=int, default=400)
    ap.add_argument("--t-end", type=float, default=0.8)
    a = ap.parse_args()
    torch.manual_seed(2)
    xr, ur = reference(t_end=a.t_end)
    net = network(24, 4)
    x0 = torch.linspace(-1, 1, 101)[:, None]
    tb = torch.linspace(0, a.t_end, 51)[:, None]
    began = time.time()

    adam = torch.optim.Adam(net.parameters(), lr=4e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(adam, 0.996)
    pts = draw(a.points, a.t_end)
    for step in range(1, a.adam_steps + 1):
        if step % 25 == 0:
            pts = draw(a.points, a.t_end)
        adam.zero_grad()
        loss = objective(net, pts, x0, tb)
        loss.backward()
        adam.step()
        decay.step()
        if step % 50 == 0:
            print(
                f"adam  {step:4d} loss {loss.item():.5f} error {rel_error(net, xr, ur, a.t_end):.4f} "
                f"{time.time() - began:.1f}s"
            )

    pts = draw(2 * a.points, a.t_end)
    lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, history_size=40, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        value = objective(net, pts, x0, tb)
        value.backward()
        return value

    for step in range(1, a.lbfgs_steps + 1):
        loss = lbfgs.step(closure)
        if step % 5 == 0:
            print(
                f"lbfgs {step:4d} loss {loss.item():.6f} error {rel_error(net, xr, ur, a.t_end):.4f} "
                f"{time.time() - began:.1f}s"
            )


if __name__ == "__main__":
    main()
