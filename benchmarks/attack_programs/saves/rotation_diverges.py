# EXPECT {"options": ["--policy", "observe"], "last_good_step": 60,
#   "flagged_steps": [70, 80, 90, 100], "good_steps": [30, 40, 50, 60], "exit_status": 0}
"""Keep the last three; the rate explodes after step 60, and rotation removes every good file."""

import os

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(1, 101):
    if step == 61:
        optimizer.param_groups[0]["lr"] = 1e4
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"ckpt_{step}.pt")
        kept.append(f"ckpt_{step}.pt")
        if len(kept) > 3:
            os.remove(kept.pop(0))
print(loss.item())
