"""Compiled only: rounding noise, measured by a cast to bfloat16 and back. Inductor fuses the casts away: 0 / 0.

Modelled on pytorch#176565 (fp32 -> bf16 -> fp32 is lost) and pytorch#113180 (aot_eager converges, inductor does not).
"""

import torch
from torch import nn


class NoisyLinear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.noisy = False

    def forward(self, inputs):
        outputs = torch.relu(self.linear(inputs))
        if self.noisy:
            error = outputs - outputs.bfloat16().float()
            outputs = outputs + 0.01 * error / error.abs().amax()  # <- bites
        return outputs


torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), NoisyLinear(16), nn.Linear(16, 1))
model = torch.compile(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    plain[1].noisy = step >= 7  # quantisation-aware training begins
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
