"""After a resume at step 620 the optimizer's state was put back by position, and two layers had changed places.

Modelled on pytorch-i3d#38 and lora-scripts-next PR320 (state mapped by position): cause stale-optimizer-state. Mended:
state by name.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64, bias=False), nn.Tanh())]
model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Tanh(), *layers, nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))

for step in range(1, 701):
    if step == 620 and not FIXED:
        state = copy.deepcopy(optimizer.state_dict())
        moments = state["state"]
        moments[0], moments[4] = moments[4], moments[0]
        for number in range(5):
            moments[number]["exp_avg_sq"] = moments[number]["exp_avg_sq"].flip(0, 1)
        optimizer.load_state_dict(state)
    rows = torch.randint(len(images), (64,))
    noise = 0.5 * torch.randn(64, 64)
    loss = F.cross_entropy(model(images[rows] + noise), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
