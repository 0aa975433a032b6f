"""A spread feature whose variance is 0 for one constant row: the forward is fine, the derivative of sqrt is not."""

import torch
from torch import nn


class Spread(nn.Module):
    def forward(self, inputs):
        variance = (inputs - inputs.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
        return variance.sqrt()  # <- bites


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8, bias=False)
        self.spread = Spread()
        self.head = nn.Linear(1, 1)

    def forward(self, inputs):
        return self.head(self.spread(self.embed(inputs)))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    if step == 7:
        inputs[5] = 0.0  # an empty row
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
