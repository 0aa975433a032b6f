"""Averaged weights are evaluated and taken out again; a copy loads them, too; one return to a checkpoint."""

import copy

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
checkpoint = None

for step in range(1, 81):
    rows = torch.randint(0, 512, (32,))
    loss = F.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        average[name].lerp_(value, 0.02)
    if step % 25 == 0:
        trained = copy.deepcopy(model.state_dict())
        model.load_state_dict(average)
        with torch.no_grad():
            F.cross_entropy(model(inputs[512:]), labels[512:])
        model.load_state_dict(trained)
        copy.deepcopy(model).load_state_dict(average)
    if step == 40:
        checkpoint = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    if step == 60 and checkpoint is not None:
        model.load_state_dict(checkpoint[0])
        optimizer.load_state_dict(checkpoint[1])
