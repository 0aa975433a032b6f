"""Healthy: a causal mask of -Inf added to the scores. No row is masked entirely."""

import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, inputs):
        scores = self.query(inputs) @ self.key(inputs).transpose(1, 2) / inputs.shape[-1] ** 0.5
        return torch.softmax(scores + self.mask, dim=-1) @ self.value(inputs)


torch.manual_seed(0)
model = nn.Sequential(CausalAttention(8, 6), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    loss = (model(torch.randn(4, 6, 8)) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
