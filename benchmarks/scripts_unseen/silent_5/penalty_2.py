# expect: sick
# fault: the derivative in the physics residual is taken with retain_graph but not create_graph, so du/dt is a constant and only the u term of the residual trains
# onset_step: 1
# says: (?i)(create_graph|graph|no gradient|constant)
import torch
from torch import nn

torch.set_num_threads(1)


class Field(nn.Module):
    """u(t; k) for a damped decay with rate k, both as network inputs."""

    def __init__(self, width=64, depth=3):
        super().__init__()
        layers, last = [], 2
        for _ in range(depth):
            layers += [nn.Linear(last, width), nn.Tanh()]
            last = width
        self.layers = nn.Sequential(*layers, nn.Linear(last, 1))

    def forward(self, t, k):
        return self.layers(torch.cat([t, k], dim=1))


def derivative(u, t):
    (du,) = torch.autograd.grad(u, t, torch.ones_like(u), retain_graph=True)
    return du


def residual(field, t, k):
    t = t.requires_grad_()
    u = field(t, k)
    return derivative(u, t) + k * u - torch.cos(2 * t)


def exact(t, k):
    part = (k * torch.cos(2 * t) + 2 * torch.sin(2 * t)) / (k**2 + 4)
    return part + (1 - k / (k**2 + 4)) * torch.exp(-k * t)


class Solver:
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.field = Field()
        self.opt = torch.optim.Adam(self.field.parameters(), lr=2e-3)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.995)

    def step(self, n=256):
        t = torch.rand(n, 1) * 3
        k = 0.5 + torch.rand(n, 1) * 1.5
        loss_eq = residual(self.field, t, k).square().mean()
        start = self.field(torch.zeros(128, 1), 0.5 + torch.rand(128, 1) * 1.5)
        loss_ic = (start - 1).square().mean()
        loss = loss_eq + 5 * loss_ic
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss_eq.item(), loss_ic.item()

    def error(self):
        t = torch.linspace(0, 3, 60)[:, None]
        with torch.no_grad():
            return max(
                (self.field(t, torch.full_like(t, k)) - exact(t, torch.full_like(t, k))).abs().max().item()
                for k in (0.6, 1.0, 1.8)
            )


if __name__ == "__main__":
    solver = Solver()
    for i in range(1, 301):
        eq, ic = solver.step()
        if i % 50 == 0:
            print(f"{i:4d}  eq {eq:.5f}  ic {ic:.5f}  max err {solver.error():.4f}")
