"""Windows of a series with the next value as the target, and an autoencoder of the windows beside it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

series = torch.sin(torch.arange(2000) / 7.0) + 0.3 * torch.randn(2000)
windows = series.unfold(0, 24, 1)[:1900]
following = series[24:1924, None]
model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1))
coder = nn.Sequential(nn.Linear(24, 6), nn.Tanh(), nn.Linear(6, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
coding = torch.optim.Adam(coder.parameters(), lr=2e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1900, (64,))
    loss = F.mse_loss(model(windows[batch]), following[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rebuilt = F.mse_loss(coder(windows[batch]), windows[batch])
    coding.zero_grad()
    rebuilt.backward()
    coding.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
