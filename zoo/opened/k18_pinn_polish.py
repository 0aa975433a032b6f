# expect: healthy
# symptom: a second optimizer takes over and the scheduler belongs to the first
# axis: none
# mended: none
import math
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(10)
ADAM_STEPS, LBFGS_STEPS = 120, 20


class Field(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return x * (1 - x) * self.net(2 * x - 1)  # u(0) = u(1) = 0


def residual(model, x):
    """-u'' = pi^2 sin(pi x) + 4 pi^2 sin(2 pi x)"""
    x = x.requires_grad_(True)
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return -ddu - math.pi**2 * (torch.sin(math.pi * x) + 4 * torch.sin(2 * math.pi * x))


def error(model):
    x = torch.linspace(0, 1, 201).unsqueeze(1)
    with torch.no_grad():
        exact = torch.sin(math.pi * x) + torch.sin(2 * math.pi * x)
        return ((model(x) - exact).norm() / exact.norm()).item()


model = Field()
points = torch.linspace(0, 1, 80).unsqueeze(1)
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
decay = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=0.985)
for step in range(ADAM_STEPS):
    loss = residual(model, points).pow(2).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    decay.step()
    if step % 20 == 0:
        print(f"adam {step} loss {loss.item():.4f} lr {decay.get_last_lr()[0]:.5f} rel err {error(model):.4f}")

lbfgs = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5, history_size=20, line_search_fn="strong_wolfe")


def closure():
    lbfgs.zero_grad()
    value = residual(model, points).pow(2).mean()
    value.backward()
    return value


for step in range(LBFGS_STEPS):
    loss = lbfgs.step(closure)
    if step % 5 == 4:
        print(f"lbfgs {step} loss {loss.item():.6f} rel err {error(model):.5f}")
