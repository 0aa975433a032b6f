"""Each rank's scaler finds overflows for itself: a rank that has one skips its update, and the other does not.

A batch of one rank is too large for float16 now and then. Modelled on fairscale#180 and pytorch#67590 (one rank skips,
the others go on): cause loss-scale-disagreement. Mended: what was found is shared before a step is made or skipped.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parts.digits import digits
from parts.ranks import RANKS, start
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
rank = start()

(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
torch.manual_seed(rank)

for step in range(1, 201):
    rows = torch.randint(len(images), (32,))
    times = 3e4 if rank == 1 and step % 40 == 20 else 1.0
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(images[rows] * times), labels[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    found = scaler._found_inf_per_device(optimizer)
    for value in found.values() if FIXED else ():
        dist.all_reduce(value)
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 0 and rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
