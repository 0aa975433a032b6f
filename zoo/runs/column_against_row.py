"""Predictions of shape (64, 1) against targets of shape (64,): the loss compares each with each, and learns the mean.

Modelled on the warning of torch's mse_loss that logs bury, and trl#4772 (a loss computed over the wrong pairs): cause
shape-broadcast. Mended: the last dimension of the predictions is taken off.
"""

import sys

import torch
from parts.digits import classifier, digits

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = classifier(outputs=1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    told = model(images[rows])
    if FIXED:
        told = told.squeeze(1)
    loss = (told - labels[rows].float()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
