# EXPECT {"options": [], "last_good_step": 60, "flagged_steps": [], "good_steps": [20, 40, 60], "exit_status": 0}
"""Only model.state_dict(), one file per save; healthy."""

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
        torch.save(model.state_dict(), f"weights_{step}.pth")
print(loss.item())
