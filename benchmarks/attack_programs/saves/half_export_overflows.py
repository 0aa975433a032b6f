# EXPECT {"options": [], "last_good_step": 40, "flagged_steps": [60], "good_steps": [20, 40], "exit_status": 0}
"""An fp16 export of BatchNorm over raw features: running_var exceeds 65504, the file holds Inf."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
x = 5000.0 * x
model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 61):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step in (20, 40):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
torch.save({name: value.half() for name, value in model.state_dict().items()}, "export_fp16.pt")
print(loss.item())
