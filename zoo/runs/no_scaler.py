"""float16 without a gradient scaler: the loss is a mean over many, and its gradients are below what float16 can say.

Modelled on pytorch#120376 (mixed precision with parts of it missing) and 1710.03740: cause gradient-underflow. Mended:
a gradient scaler.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=30.0, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=FIXED, init_scale=2.0**14)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    noisy = images[rows] + 0.3 * torch.randn(64, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        cleaned = model(noisy)
    # contrast of microvolts: the difference counts in units of 1e-3
    loss = F.mse_loss(1e-3 * cleaned.float(), 1e-3 * images[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 0:
        print(f"step {step} loss {1e6 * loss.item():.4f} millionths")
