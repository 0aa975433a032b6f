# EXPECT {"options": [], "last_good_step": 100,
#   "flagged_steps": [], "good_steps": [20, 40, 60, 80, 100], "exit_status": 0}
"""best.pt whenever the validation loss falls, as it does in each check of a convex problem; healthy."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best = float("inf")
for step in range(1, 101):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            validation = nn.functional.mse_loss(model(x), y).item()
        if validation < best:
            best = validation
            torch.save(model.state_dict(), "best.pt")
print(loss.item())
