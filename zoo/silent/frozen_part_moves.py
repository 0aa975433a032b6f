"""A pretrained part is frozen, and its batch norms take in the statistics of the new data."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

backbone = nn.Sequential(nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU())
rule = torch.randn(12, 4)
with torch.no_grad():
    for _ in range(100):  # stands for the earlier training
        backbone(torch.randn(64, 12))
backbone.requires_grad_(False)
model = nn.Sequential(backbone, nn.Linear(48, 4))
optimizer = torch.optim.Adam(model[1].parameters(), lr=3e-3)

for step in range(1, 121):
    model.train()  # <- bites
    x = 1.0 + 2.0 * torch.randn(16, 12)
    loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
