# expect: sick
# symptom: two runs of the same command disagree from step 1; the final loss differs widely from run to run
# axis: harness
# cause: no seed is set for torch: initial weights and the shuffling differ by run
# says: (?i)(seed)
# onset_step: 1
# fix: torch.manual_seed(1234) at the start
# mended: MENDED=1 python s10_spiral_sweep.py
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
if os.environ.get("MENDED") == "1":
    torch.manual_seed(1234)


def spirals(n):
    g = torch.Generator().manual_seed(0)
    t = 3 * math.pi * torch.rand(n, generator=g).sqrt()
    lab = torch.randint(0, 2, (n,), generator=g)
    r = t / (3 * math.pi)
    xy = torch.stack([r * torch.cos(t + math.pi * lab), r * torch.sin(t + math.pi * lab)], 1)
    return TensorDataset(xy + 0.02 * torch.randn(n, 2, generator=g), lab.float())


layers, width = [], 8
for i in range(4):
    layers += [nn.Linear(2 if i == 0 else width, width), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(width, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-2)
loader = DataLoader(spirals(4000), batch_size=40, shuffle=True)
step = 0
for epoch in range(4):
    for xy, lab in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(xy).squeeze(1), lab)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step in (1, 2, 3) or step % 50 == 0:
            print(f"step {step} loss {loss.item():.6f}")
