# EXPECT {"options": [], "last_good_step": 60, "flagged_steps": [], "good_steps": [20, 40, 60], "exit_status": 0}
"""A file per save, and a link latest.pt to the newest; healthy."""

import os

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 61):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"step_{step}.pt")
        if os.path.lexists("latest.pt"):
            os.remove("latest.pt")
        os.symlink(f"step_{step}.pt", "latest.pt")
print(loss.item())
