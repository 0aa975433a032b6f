"""The validation data is evaluated in training mode, with dropout, and batch norm takes it into its statistics."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
validation = [torch.randn(16, 16) for _ in range(4)]


@torch.no_grad()
def evaluate():
    # bites: no model.eval() here
    return sum(F.cross_entropy(model(x), x[:, :4].argmax(1)).item() for x in validation)


for step in range(1, 81):
    x = torch.randn(32, 16)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        evaluate()
