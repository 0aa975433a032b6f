# expect: healthy
# cause: none, LBFGS with a closure that is called many times per step, solving a differential equation on a fixed set of points
import math

import torch
from torch import nn

torch.manual_seed(23)
torch.set_default_dtype(torch.float64)

# u'' + pi^2 u = 0 is too easy: take -u'' = f with u(0) = u(1) = 0
points = torch.linspace(0, 1, 96).unsqueeze(1).requires_grad_(True)


def exact(x):
    return torch.sin(math.pi * x) + 0.5 * torch.sin(3 * math.pi * x) * x


def source(x):
    x = x.detach().requires_grad_(True)
    (du,) = torch.autograd.grad(exact(x).sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x)
    return -ddu.detach()


f = source(points)
net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
opt = torch.optim.LBFGS(
    net.parameters(),
    lr=0.8,
    max_iter=6,
    history_size=20,
    tolerance_change=1e-16,
    tolerance_grad=1e-14,
    line_search_fn="strong_wolfe",
)
calls = 0


def residual_loss():
    u = points * (1 - points) * net(points)
    (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), points, create_graph=True)
    return (ddu + f).pow(2).mean()


def closure():
    global calls
    calls += 1
    opt.zero_grad()
    loss = residual_loss()
    loss.backward()
    return loss


for step in range(150):
    loss = opt.step(closure)
    if step % 15 == 0 or step == 149:
        with torch.no_grad():
            err = (points * (1 - points) * net(points) - exact(points)).abs().max().item()
        print(f"step {step} residual {loss.item():.3e} largest error {err:.2e} closure calls {calls}")
