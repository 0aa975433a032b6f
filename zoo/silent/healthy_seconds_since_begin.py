"""The first time is taken off before the rest becomes float32."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Beacon(nn.Module):
    """The light of a beacon that turns once in 40 seconds, by the time."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, time):
        turn = torch.remainder(time, 40.0) / 40.0 * 2 * torch.pi
        waves = torch.stack([turn.sin(), turn.cos(), (2 * turn).sin(), (2 * turn).cos()], -1)
        return self.body(waves).squeeze(-1)


begin = 1.7316e9
seconds = begin + 86400 * torch.rand(4000, dtype=torch.float64)
light = torch.exp(2 * torch.cos(2 * torch.pi * ((seconds - begin) % 40.0) / 40.0) - 2).float()
time = (seconds - begin).float()
model = Beacon()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(1, 161):
    rows = torch.randint(0, 4000, (128,))
    loss = nn.functional.mse_loss(model(time[rows]), light[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
