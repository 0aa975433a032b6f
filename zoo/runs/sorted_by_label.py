"""Digits in the order of the data set's folders: all zeros, then all ones, and so on.

Modelled on pytorch#31771 and transformers#8874 (a sampler that does not shuffle): cause unshuffled-data. Mended: a
loader that shuffles.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import classifier, digits
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
order = labels.argsort(stable=True)
loader = DataLoader(TensorDataset(images[order], labels[order]), batch_size=16, shuffle=FIXED)
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

step = 0
for epoch in range(8):
    for seen, wanted in loader:
        step += 1
        loss = F.cross_entropy(model(seen), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
