# EXPECT {"options": ["--policy", "observe"], "last_good_step": 40,
#   "flagged_steps": [60, 80], "good_steps": [20, 40], "exit_status": 0}
"""Saved into an open file; a NaN batch at step 45 spoils the weights."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 81):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x * float("nan") if step == 45 else x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with open("ckpt.pt", "wb") as file:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
print(loss.item())
