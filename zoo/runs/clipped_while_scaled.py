"""Gradients are clipped to 1 while the scaler's 65536 is still on them: what is left is next to nothing.

Modelled on Lightning#9330 and fairseq#4555 (the norm is taken of scaled gradients): cause clip-before-unscale. Mended:
`scaler.unscale_` before it.
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
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(images[rows])
    loss = F.cross_entropy(logits.float(), labels[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if FIXED:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
