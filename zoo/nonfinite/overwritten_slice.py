"""Backward only: sums over counts, and the rows without a count set to 0 afterwards. Their gradient is still 0 / 0.

Modelled on the StackOverflow threads on CopySlices (0 * NaN behind a slice that was overwritten).
"""

import torch
from torch import nn


class MeanOverTokens(nn.Module):
    def forward(self, inputs):
        sums, counts = inputs[:, :-1], inputs[:, -1:].detach().round()
        means = sums / counts  # <- bites
        means[counts.squeeze(1) == 0] = 0.0
        return means


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), MeanOverTokens(), nn.Linear(7, 1))
with torch.no_grad():
    model[0].weight[-1].zero_()
    model[0].bias[-1] = 3.0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    if step == 7:
        model[0].bias.data[-1] = 0.0  # a row without tokens
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
