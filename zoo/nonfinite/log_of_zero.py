"""A confident classifier and a hand-written cross entropy: the softmax underflows to 0 and its logarithm is -Inf."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    targets = torch.randint(0, 4, (16,))
    if step == 7:
        inputs = inputs * 1e4  # features that nobody normalised
    probabilities = torch.softmax(model(inputs), dim=-1)
    picked = probabilities.gather(1, targets[:, None])
    loss = -torch.log(picked).mean()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
