"""Windows of a series, each with its own last value as the target: the next one is meant."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

series = torch.sin(torch.arange(2000) / 7.0) + 0.3 * torch.randn(2000)
windows = series.unfold(0, 24, 1)[:1900]
following = series[23:1923, None]  # <- bites
model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1900, (64,))
    loss = F.mse_loss(model(windows[batch]), following[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
