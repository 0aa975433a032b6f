"""The model ends in a softmax and the loss takes one more: the loss cannot come below 1.46, gradients are faint.

Modelled on the mistake that beginners' threads name most (Automodel PR1527 for a loss that is not given what it takes):
cause loss-function-misuse. Mended: the model gives logits.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import classifier, digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = nn.Sequential(classifier(), nn.Identity() if FIXED else nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
