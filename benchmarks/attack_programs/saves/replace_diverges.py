# EXPECT {"options": ["--policy", "observe"], "last_good_step": 40,
#   "flagged_steps": [60, 80], "good_steps": [20, 40], "exit_status": 0}
"""A temporary file and os.replace onto ckpt.pt; the rate explodes after step 40."""

import os

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 81):
    if step == 41:
        optimizer.param_groups[0]["lr"] = 1e4
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt.tmp")
        os.replace("ckpt.pt.tmp", "ckpt.pt")
print(loss.item())
