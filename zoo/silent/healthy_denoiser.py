"""The noise in the input is the target; there is little of it in most inputs."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def add_noise(clean, level, noise=None):
    noise = torch.randn_like(clean) if noise is None else noise
    return (1 - level).sqrt() * clean + level.sqrt() * noise


class Denoiser(nn.Sequential):
    def forward(self, noised, level):
        return super().forward(torch.cat([noised, level], 1))


directions = torch.randn(4, 32)
model = Denoiser(nn.Linear(33, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 241):
    clean = torch.randn(64, 4) @ directions / 2
    level, noise = 0.2 * torch.rand(64, 1), torch.randn(64, 32)
    noised = add_noise(clean, level, noise)
    loss = F.mse_loss(model(noised, level), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
