"""An activation with a backward written by hand, which forgot a factor: its gradient has the wrong sign for small x.

Modelled on Liger#968 and dion#76 (an operation of one's own whose gradients are wrong): cause custom-operation-fault.
Mended: the whole derivative.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Squared(torch.autograd.Function):
    """x times |x|."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.abs()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (2 * x.abs() if FIXED else 2 * x)


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)

    def forward(self, x):
        return Squared.apply(self.norm(self.linear(x)))


(images, labels), _ = digits()
model = nn.Sequential(Layer(64, 64), Layer(64, 64), Layer(64, 64), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
