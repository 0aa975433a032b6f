# EXPECT {"options": ["--policy=observe"], "last_good_step": 40,
#   "flagged_steps": [60], "good_steps": [20, 40], "exit_status": 0}
"""torch.distributed.checkpoint in one process, a folder per save, the last one kept; a NaN batch at step 50."""

import shutil
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 61):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x * float("nan") if step == 50 else x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"dcp-{step}")
        shutil.rmtree(f"dcp-{step - 20}", ignore_errors=True)
print(loss.item())
