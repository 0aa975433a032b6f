# EXPECT {"options": ["--policy", "observe"], "last_good_step": 40,
#   "flagged_steps": [60, 80], "good_steps": [20, 40], "exit_status": 0}
"""A folder per save, older ones removed by shutil.rmtree; a NaN batch at step 50."""

import os
import shutil

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
    loss = nn.functional.mse_loss(model(x * float("nan") if step == 50 else x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        folder = f"checkpoint-{step}"
        os.makedirs(folder)
        torch.save(model.state_dict(), f"{folder}/model.pt")
        torch.save(optimizer.state_dict(), f"{folder}/optimizer.pt")
        shutil.rmtree(f"checkpoint-{step - 20}", ignore_errors=True)
print(loss.item())
