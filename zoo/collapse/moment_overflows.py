"""One batch with a gradient of 1e25: its square is Inf in Adam's second moment, and those weights never move again."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = nn.Linear(16, 1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 501):
    inputs = torch.randn(64, 16)
    if step == 300:
        inputs[0] = 1e25  # a sensor that was not plugged in
    targets = teacher(inputs).detach()
    loss = F.l1_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
