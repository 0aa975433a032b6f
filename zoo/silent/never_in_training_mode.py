"""The model comes in evaluation mode, and nobody calls train()."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def from_file():
    """Stands for a loader of models, which returns them in evaluation mode."""
    return nn.Sequential(nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 4)).eval()


model = from_file()  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
rule = torch.randn(12, 4)

for step in range(1, 121):
    x = torch.randn(32, 12)
    loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
