"""The forward goes to the module and not to the wrapper around it, so gradients are averaged over no ranks.

Each rank's loss looks well, and two different models come out. Modelled on FunASR#3472 and pytorch#69031: cause
unsynchronized-gradients. Mended: the wrapped model is called.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parts.digits import digits
from parts.ranks import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
rank = start()

(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)

for step in range(1, 201):
    rows = torch.randint(len(images), (32,))
    logits = wrapped(images[rows]) if FIXED else model(images[rows])
    loss = F.cross_entropy(logits, labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
