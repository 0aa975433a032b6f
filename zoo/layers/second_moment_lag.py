"""From step 601 on a sensor that slept sends values; Adam divides its gradients by what it remembers of its sleep."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

true_weight = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.999))

for step in range(1, 701):
    inputs = torch.randn(64, 16) * (1.0 if step <= 600 else 8.0)
    loss = F.mse_loss(model(inputs), inputs @ true_weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
