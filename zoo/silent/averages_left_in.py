"""Averaged weights are copied in to be evaluated, and the trained ones are never put back."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

inputs = torch.randn(640, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(640, 5)).argmax(1)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
average = {name: value.clone() for name, value in model.state_dict().items()}

for step in range(1, 81):
    rows = torch.randint(0, 512, (32,))
    loss = F.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        average[name].lerp_(value, 0.02)
    if step % 25 == 0:
        model.load_state_dict(average)
        with torch.no_grad():
            F.cross_entropy(model(inputs[512:]), labels[512:])
