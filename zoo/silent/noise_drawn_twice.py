"""The function that adds the noise draws its own: the target is another noise than the one in the input."""

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
    level, noise = torch.rand(64, 1), torch.randn(64, 32)
    noised = add_noise(clean, level)  # <- bites
    loss = F.mse_loss(model(noised, level), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
