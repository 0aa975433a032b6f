"""A hand-written softmax without the maximum taken off: exp overflows to Inf, and Inf / Inf is NaN."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)

    def forward(self, inputs):
        weights = self.router(inputs).exp()  # <- bites
        return weights / weights.sum(-1, keepdim=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.experts = nn.Linear(8, 4)

    def forward(self, inputs):
        return (self.gate(inputs) * self.experts(inputs)).sum(-1)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    if step == 7:
        inputs = inputs * 200.0
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
