"""The noise of a denoiser comes from `rand_like`: it is uniform between 0 and 1."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Denoiser(nn.Sequential):
    def forward(self, noised, level):
        return super().forward(torch.cat([noised, level], 1))


directions = torch.randn(4, 32)
model = Denoiser(nn.Linear(33, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 241):
    clean = torch.randn(64, 4) @ directions / 2
    level = torch.rand(64, 1)
    noise = torch.rand_like(clean)  # <- bites
    loss = F.mse_loss(model((1 - level).sqrt() * clean + level.sqrt() * noise, level), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
