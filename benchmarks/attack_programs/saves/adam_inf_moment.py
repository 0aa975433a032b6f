# EXPECT {"options": ["--policy", "observe"], "last_good_step": 40,
#   "flagged_steps": [60, 80], "good_steps": [20, 40], "exit_status": 0}
"""One loss times 1e25 squares to Inf in exp_avg_sq; every weight stays finite."""

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
    loss = nn.functional.mse_loss(model(x), y)
    (loss * (1e25 if step == 50 else 1.0)).backward()
    optimizer.step()
    if step % 20 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
print(loss.item())
