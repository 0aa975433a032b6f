# expect: healthy
# symptom: a network with ReLU activations and second derivatives in the loss; but its input are sines and cosines of the coordinate, so the second derivative does not vanish, the residual goes down, and sensor values pin the solution
# axis: none
# mended: none
"""Vibration shape from noisy sensors and u'' + k^2 u = f on [0, 1]; Fourier features in front of an MLP."""

import math

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(4)
K = 2.0


def solution(x):
    return torch.sin(2 * math.pi * x) + 0.4 * torch.sin(5 * math.pi * x)


def rhs(x):
    a = torch.sin(2 * math.pi * x)
    b = 0.4 * torch.sin(5 * math.pi * x)
    return (K**2 - (2 * math.pi) ** 2) * a + (K**2 - (5 * math.pi) ** 2) * b


class FourierMLP(nn.Module):
    def __init__(self, n_freq=8, width=96):
        super().__init__()
        self.register_buffer("freq", math.pi * torch.arange(1, n_freq + 1).float())
        self.layers = nn.Sequential(
            nn.Linear(2 * n_freq, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        ang = x * self.freq
        return self.layers(torch.cat([ang.sin(), ang.cos()], dim=-1))


def second_derivative(net, x):
    u = net(x)
    (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return u, u_xx


net = FourierMLP()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=400, eta_min=1e-5)
sensors = torch.rand(80, 1)
values = solution(sensors) + 0.03 * torch.randn(80, 1)
grid = torch.linspace(0, 1, 401)[:, None]
norm = rhs(grid).pow(2).mean()

for step in range(400):
    x = torch.rand(256, 1, requires_grad=True)
    u, u_xx = second_derivative(net, x)
    residual = u_xx + K**2 * u - rhs(x)
    loss_eq = residual.pow(2).mean() / norm
    loss_data = (net(sensors) - values).pow(2).mean()
    loss = loss_data + 0.1 * loss_eq
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 40 == 0 or step == 399:
        with torch.no_grad():
            err = (net(grid) - solution(grid)).norm() / solution(grid).norm()
        print(
            f"{step:4d} loss {loss.item():.5f} equation {loss_eq.item():.5f} data {loss_data.item():.6f} error {err.item():.4f}"
        )
