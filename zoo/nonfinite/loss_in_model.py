"""The model computes its own loss, a Gaussian likelihood, and one predicted variance rounds to zero."""

import torch
from torch import nn


class Likelihood(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.raw_variance = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, inputs, targets):
        variance = self.raw_variance(inputs).exp()
        return (variance.log() + (targets - self.mean(inputs)).pow(2) / variance).mean()  # <- bites


torch.manual_seed(0)
model = Likelihood()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs, targets = torch.randn(8, 8), torch.randn(8, 1)
    if step == 7:
        with torch.no_grad():
            model.raw_variance.bias.fill_(-200.0)
    loss = model(inputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
