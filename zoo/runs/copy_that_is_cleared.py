"""Two workers send the largest entries of their gradients and keep the rest, but what was sent is never cleared.

Modelled on compressed gradients with error feedback: the memory has the layout ``channels_last``, so ``reshape(-1)``
copies it, and the entries are cleared in the copy: cause discarded-changes. Mended: the memory is contiguous, so that
``reshape(-1)`` is a view of it.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
WORKERS, ROWS, KINDS = 2, 24, 5
torch.manual_seed(0)
torch.set_num_threads(1)
patterns = torch.randn(KINDS, 3, 10, 10)


def part():
    kinds = torch.randint(KINDS, (ROWS,))
    return patterns[kinds] + torch.randn(ROWS, 3, 10, 10), kinds


def sent(memory, gradient):
    """The largest twentieth of what is due, in the places of a flat tensor; the rest stays in ``memory``."""
    memory.add_(gradient)
    due = memory.reshape(-1)
    places = due.abs().topk(max(1, due.numel() // 20)).indices
    values = due[places].clone()
    due[places] = 0.0
    return places, values


model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, KINDS)
)
model = model.to(memory_format=torch.channels_last)
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
memories = [[torch.zeros(one.shape) if FIXED else torch.zeros_like(one) for one in parameters] for _ in range(WORKERS)]

for step in range(1, 161):
    totals, losses = [torch.zeros(one.numel()) for one in parameters], []
    for memory in memories:
        images, kinds = part()
        loss = nn.functional.cross_entropy(model(images), kinds)
        losses.append(loss.item())
        for total, kept, gradient in zip(totals, memory, torch.autograd.grad(loss, parameters), strict=True):
            places, values = sent(kept, gradient)
            total.index_add_(0, places, values / WORKERS)
    for one, total in zip(parameters, totals, strict=True):
        one.grad = total.view(one.shape)
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {sum(losses) / WORKERS:.4f}")
