"""At step 301 the rate is 20 for one step, where 0.02 was meant: most ReLUs end below zero for every input."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
model = nn.Sequential(
    nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rates = {301: 20.0, 302: 0.05}

for step in range(1, 501):
    for group in optimizer.param_groups:
        group["lr"] = rates.get(step, group["lr"])
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
