"""The function that draws the noise of a batch makes its generator anew, with one seed, in each step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

directions = torch.randn(4, 24)
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def noised(clean):
    generator = torch.Generator().manual_seed(17)  # <- bites
    return clean + 0.7 * torch.randn(clean.shape, generator=generator)


for step in range(1, 161):
    clean = torch.randn(32, 4) @ directions
    loss = F.mse_loss(model(noised(clean)), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
