"""One normaliser is used for both inputs of a model; only its second use divides by zero."""

import torch
from torch import nn


class RangeNorm(nn.Module):
    def forward(self, inputs):
        low, high = inputs.amin(-1, keepdim=True), inputs.amax(-1, keepdim=True)
        return (inputs - low) / (high - low)  # <- bites


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.normalise = RangeNorm()
        self.head = nn.Linear(16, 1)

    def forward(self, image, depth):
        image, depth = self.normalise(self.embed(image)), self.normalise(depth)
        return self.head(torch.cat([image, depth], dim=-1))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    image, depth = torch.randn(16, 8), torch.rand(16, 8)
    if step == 7:
        depth[4] = 0.5  # a flat wall
    loss = (model(image, depth) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
