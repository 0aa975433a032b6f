"""Attention over a padded batch: one sequence of step 7 is all padding, so a whole row of scores is -Inf."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, inputs, padding):
        scores = self.query(inputs) @ self.key(inputs).transpose(1, 2) / inputs.shape[-1] ** 0.5
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        return torch.softmax(scores, dim=-1) @ self.value(inputs)  # <- bites


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(8)
        self.head = nn.Linear(8, 1)

    def forward(self, inputs, padding):
        return self.head(self.attention(inputs, padding))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(4, 6, 8)
    lengths = torch.tensor([6, 5, 3, 0 if step == 7 else 2])
    padding = torch.arange(6)[None, :] >= lengths[:, None]
    loss = (model(inputs, padding) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
