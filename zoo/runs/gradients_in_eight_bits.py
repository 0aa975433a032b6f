"""Four workers exchange their gradients in 8 bits, and the codes are summed in int8, where 127 + 1 is -128.

Modelled on compressed all-reduces: cause integer-overflow. Mended: the codes are summed in 32 bits.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
WORKERS, ROWS = 4, 16
torch.manual_seed(0)
torch.set_num_threads(1)
truth = torch.randn(12)


def part():
    features = torch.randn(ROWS, 12)
    return features, torch.tanh(features @ truth)


def mean_of(gradients):
    """The mean of the workers' gradients, each rounded to 8 bits with a common scale."""
    scale = torch.stack([one.abs().max() for one in gradients]).max().clamp(min=1e-12)
    codes = [(one / scale * 127).round().to(torch.int8) for one in gradients]
    total = codes[0].to(torch.int32) if FIXED else codes[0].clone()
    for one in codes[1:]:
        total += one
    return total.float() * scale / 127 / WORKERS


model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9)

for step in range(1, 121):
    shares, losses = [], []
    for _ in range(WORKERS):
        features, target = part()
        loss = nn.functional.mse_loss(model(features).squeeze(1), target)
        shares.append(torch.autograd.grad(loss, parameters))
        losses.append(loss.item())
    for parameter, gradients in zip(parameters, zip(*shares, strict=True), strict=True):
        parameter.grad = mean_of(gradients)
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {sum(losses) / WORKERS:.4f}")
