# expect: healthy
# cause: none, targets in metres of a few micrometres give a loss near 1e-11; the output scale and the eps of Adam fit that size
import torch
from torch import nn

torch.manual_seed(170)
UM = 1e-6


def cantilever(n):
    """deflection of a probe tip [m] from force curve samples"""
    stiff = 0.5 + torch.rand(n, 1)
    depth = 2 + 6 * torch.rand(n, 1)
    z = torch.linspace(-1, 1, 40)
    force = depth * torch.exp(-((z - 0.2 * stiff) ** 2) / 0.05) - stiff * z.clamp(min=0) * 4
    deflection = (depth * stiff - 0.3 * depth**2 / stiff) * UM
    return force + 0.1 * torch.randn(n, 40), deflection


class TipModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.body(x) * UM


model = TipModel()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-20)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.994)
x_val, y_val = cantilever(1000)
for step in range(450):
    x, y = cantilever(128)
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 50 == 0 or step == 449:
        with torch.no_grad():
            rms = (model(x_val) - y_val).square().mean().sqrt().item()
        print(
            f"step {step} loss {loss.item():.3e} validation rms {rms / UM:.3f} um (spread {y_val.std().item() / UM:.2f} um)"
        )
