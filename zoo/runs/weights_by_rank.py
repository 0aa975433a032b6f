"""Each rank makes its weights from a seed of its own, and nothing makes them equal before training begins.

Gradients are averaged, but of different models. Modelled on audio#3749 and Automodel PR2468 (replicas that are not the
same): cause rank-divergence. Mended: the weights of rank 0 are sent to all.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parts.digits import digits
from parts.ranks import average, start
from torch import nn

FIXED = "--fixed" in sys.argv
torch.set_num_threads(1)
rank = start()
torch.manual_seed(rank)

(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
if FIXED:
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(1, 201):
    rows = torch.randint(len(images), (32,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    average([parameter.grad for parameter in model.parameters()])
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
