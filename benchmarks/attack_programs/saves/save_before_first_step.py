# EXPECT {"options": [], "last_good_step": 30, "flagged_steps": [], "good_steps": [30], "exit_status": 0}
"""The initial weights are saved before any update; healthy."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.save(model.state_dict(), "init.pt")
for _step in range(1, 31):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "last.pt")
print(loss.item())
