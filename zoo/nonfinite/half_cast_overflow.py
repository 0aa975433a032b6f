"""A residual stream that has grown past 65504 is cast to float16."""

import torch
from torch import nn


class Compress(nn.Module):
    def forward(self, inputs):
        return inputs.to(torch.float16)  # <- bites


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.compress = Compress()
        self.head = nn.Linear(16, 1)

    def forward(self, inputs):
        return self.head(self.compress(self.embed(inputs)).float())


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)

for step in range(1, 11):
    inputs = torch.randn(8, 16)
    if step == 7:
        inputs = inputs * 1e6
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
