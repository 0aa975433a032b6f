"""A hand-written optimizer divides each update by its norm. A layer that got no gradient is divided by zero.

Modelled on microsoft/dion#76: Newton-Schulz iterations of Muon begin with such a division.
"""

import torch
from torch import nn


class Normalised(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                direction = parameter.grad / parameter.grad.norm()  # <- bites
                parameter.sub_(group["lr"] * direction)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = Normalised(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    if step == 6:
        inputs = torch.full((16, 8), 1e4) * -torch.sign(model[0].weight.detach().sum(0))  # kills every unit
        model[0].bias.data.fill_(-1e6)
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
