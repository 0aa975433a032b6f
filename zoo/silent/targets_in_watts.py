"""The inputs are standardised and the targets are not: the first gradients are so long that the loss explodes."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

inputs = torch.randn(2048, 8)
watts = 42_000 + 7_500 * torch.tanh(inputs @ torch.randn(8, 1))
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(200):
    rows = torch.randint(0, 2048, (64,))
    loss = F.mse_loss(model(inputs[rows]), watts[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
