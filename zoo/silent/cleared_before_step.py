"""The gradients are cleared between the backward and the step: the optimizer has nothing to apply."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(512, 12)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(150):
    rows = torch.randint(0, len(inputs), (32,))
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    loss.backward()
    optimizer.zero_grad(set_to_none=False)  # <- bites
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
