"""A signal from its coordinate, by layers of sines whose backward is written by hand.

Modelled on an operation that saves memory: its context keeps the scaled input in one buffer of the class, into which
the next layer writes before the backward of this one reads it: cause custom-operation-fault. Mended: the context keeps
its own input.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

place = torch.linspace(-1, 1, 256).unsqueeze(1)
signal = torch.sin(9 * place) * torch.cos(4 * place) + 0.3 * torch.sin(31 * place)


class Sine(torch.autograd.Function):
    buffer = torch.empty(256, 48)

    @staticmethod
    def forward(ctx, x):
        if FIXED:
            ctx.scaled = 5 * x
        else:
            ctx.scaled = Sine.buffer.copy_(5 * x)  # <- bites
        return torch.sin(5 * x)

    @staticmethod
    def backward(ctx, gradient):
        return 5 * gradient * torch.cos(ctx.scaled)


class Sines(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 48), nn.Linear(48, 48), nn.Linear(48, 48)])
        self.last = nn.Linear(48, 1)
        for layer in self.layers[1:]:
            nn.init.uniform_(layer.weight, -0.07, 0.07)

    def forward(self, x):
        for layer in self.layers:
            x = Sine.apply(layer(x))
        return self.last(x)


model = Sines()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 201):
    loss = nn.functional.mse_loss(model(place), signal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
