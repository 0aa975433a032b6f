# expect: healthy
# fault: one module called 20 times in each forward
# note: a neural ODE integrated by Euler: the same field is called at every step of the trajectory.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(79)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 2))

    def forward(self, z):
        return self.f(z)


def integrate(field, z, steps=20, dt=0.1):
    out = []
    for _ in range(steps):
        z = z + dt * field(z)
        out.append(z)
    return torch.stack(out, 1)


def truth(z):
    return torch.stack([z[:, 1], -z[:, 0] - 0.3 * z[:, 1] * z[:, 0] ** 2], 1)


field = Field()
opt = torch.optim.Adam(field.parameters(), lr=5e-3)
for it in range(150):
    z0 = torch.rand(32, 2) * 4 - 2
    with torch.no_grad():
        ref = integrate(truth, z0)
    loss = (integrate(field, z0) - ref).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 15 == 0:
        print(it, loss.item())
