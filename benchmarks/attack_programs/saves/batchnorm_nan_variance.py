# EXPECT {"options": ["--policy", "observe"], "last_good_step": 20,
#   "flagged_steps": [40, 60], "good_steps": [20], "exit_status": 0}
"""A bad batch passes in training mode without a gradient: running_var is NaN, weights are not."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 61):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step == 30:
        with torch.no_grad():
            model(x * float("nan"))
    if step % 20 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
print(loss.item())
