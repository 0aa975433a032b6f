# expect: healthy
# symptom: no batches and no data targets inside the domain, gradients cleared inside a closure that runs many times per step, retain/create_graph everywhere, second optimizer takes over with a sudden drop of the loss
# axis: none
# mended: none
import math
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)

NU = 0.05
ADAM_STEPS, LBFGS_STEPS = 400, 25


class Field(nn.Module):
    """u(t, x) for the viscous Burgers equation; inputs are scaled to [-1, 1]."""

    def __init__(self, width=32, depth=4):
        super().__init__()
        layers, d = [], 2
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.Tanh()]
            d = width
        self.net = nn.Sequential(*layers, nn.Linear(d, 1))
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, t, x):
        return self.net(torch.cat([2 * t - 1, x], 1))


def grad(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, t, x):
    u = model(t, x)
    u_t, u_x = grad(u, t), grad(u, x)
    return u_t + u * u_x - NU * grad(u_x, x)


def collocation(n):
    eng = torch.quasirandom.SobolEngine(2, scramble=True, seed=3)
    p = eng.draw(n)
    return p[:, :1].clone().requires_grad_(True), (2 * p[:, 1:] - 1).requires_grad_(True)


def reference(nx=201, nt=6000):
    """Explicit finite differences, u(0, x) = -sin(pi x), u(t, -1) = u(t, 1) = 0."""
    x = np.linspace(-1, 1, nx)
    dx, dt = x[1] - x[0], 1.0 / nt
    u = -np.sin(np.pi * x)
    for _ in range(nt):
        adv = 0.5 * (u[2:] ** 2 - u[:-2] ** 2) / (2 * dx)
        dif = NU * (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2
        u[1:-1] += dt * (dif - adv)
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(u, dtype=torch.float32)[:, None]


def main():
    model = Field()
    t_c, x_c = collocation(1000)
    x_0 = torch.linspace(-1, 1, 100)[:, None]
    t_0 = torch.zeros_like(x_0)
    u_0 = -torch.sin(math.pi * x_0)
    t_b = torch.rand(100, 1)
    x_b = torch.where(torch.arange(100)[:, None] % 2 == 0, -1.0, 1.0)
    x_ref, u_ref = reference()
    t0 = time.time()

    def objective():
        pde = residual(model, t_c, x_c).pow(2).mean()
        ini = (model(t_0, x_0) - u_0).pow(2).mean()
        bnd = model(t_b, x_b).pow(2).mean()
        return pde + 10 * ini + 10 * bnd

    @torch.no_grad()
    def rel_error():
        u = model(torch.ones_like(x_ref), x_ref)
        return ((u - u_ref).norm() / u_ref.norm()).item()

    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(ADAM_STEPS):
        adam.zero_grad()
        loss = objective()
        loss.backward()
        adam.step()
        if step % 25 == 0:
            print(f"adam step {step:4d} loss {loss.item():.5f} error {rel_error():.4f} ({time.time() - t0:.1f}s)")

    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=20, history_size=50, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        value = objective()
        value.backward()
        return value

    for step in range(LBFGS_STEPS):
        loss = lbfgs.step(closure)
        if step % 5 == 0 or step == LBFGS_STEPS - 1:
            print(f"lbfgs step {step:4d} loss {loss.item():.6f} error {rel_error():.4f} ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
