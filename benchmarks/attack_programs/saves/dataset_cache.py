# EXPECT {"options": [], "last_good_step": 40, "flagged_steps": [], "good_steps": [40], "exit_status": 0}
"""A cache of the data, missing values as NaN, is no checkpoint; one real save at the end; healthy."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
raw = x.clone()
raw[::7, 2] = float("nan")
torch.save({"features": raw, "labels": y}, "cache.pt")
x = torch.load("cache.pt")["features"].nan_to_num(0.0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _step in range(1, 41):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "final.pt")
print(loss.item())
