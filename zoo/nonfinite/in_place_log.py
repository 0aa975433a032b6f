"""Log-compression in place: the zero that was there is gone from memory by the time the NaN is noticed."""

import torch
from torch import nn


class LogCompress(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, power):
        scaled = power * self.gain
        scaled.log_()  # <- bites
        return scaled


torch.manual_seed(0)
model = nn.Sequential(LogCompress(), nn.LayerNorm(8), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    power = torch.randn(16, 8).pow(2) + 1e-3
    if step == 7:
        power[2, 3] = 0.0  # digital silence
    loss = (model(power) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
