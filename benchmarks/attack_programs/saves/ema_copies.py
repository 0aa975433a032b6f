# EXPECT {"options": [], "last_good_step": 60, "flagged_steps": [], "good_steps": [30, 60], "exit_status": 0}
"""An averaged copy beside the model, both in one file; healthy."""

import copy

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
ema = copy.deepcopy(model).requires_grad_(False)
for step in range(1, 61):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    for mean, weight in zip(ema.parameters(), model.parameters(), strict=True):
        mean.lerp_(weight.detach(), 0.01)
    if step % 30 == 0:
        torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "step": step}, "ckpt.pt")
print(loss.item())
