"""The same with a time for each row, drawn anew in each step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

angles = 6.2832 * torch.rand(4096)
points = torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(4096, 2)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, time):
        return self.layers(torch.cat([x, time[:, None].float() / 100], 1))


kept = torch.linspace(1.0, 0.01, 100)
model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    clean = points[torch.randint(0, 4096, (1024,))]
    time = torch.randint(0, 100, (1024,))
    noise, level = torch.randn_like(clean), kept[time][:, None]
    loss = F.mse_loss(model(level.sqrt() * clean + (1 - level).sqrt() * noise, time), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
