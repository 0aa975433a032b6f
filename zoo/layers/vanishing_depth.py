"""Twenty layers of sigmoids without a shortcut: next to nothing of the gradient reaches the first of them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.Sigmoid())
for _ in range(19):
    model.extend([nn.Linear(64, 64), nn.Sigmoid()])
model.append(nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(1, 301):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
