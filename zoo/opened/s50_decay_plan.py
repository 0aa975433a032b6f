# expect: sick
# symptom: loss leaps to chance (ln 6) within a few steps from 620 on and stays; the weights shrink to nothing
# axis: optimizer
# cause: weight decay is raised to 40 from step 620 on (0.4 was meant), the weights are pulled to 0
# says: (?i)weight[_ -]?decay|\bdecay (is|of|too|raised)
# onset_step: 620
# fix: weight decay 0.04 instead of 40
# mended: MENDED=1 python s50_decay_plan.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(57)
LATE = 0.04 if os.environ.get("MENDED") == "1" else 40


def decay_at(step):
    return 0.01 if step < 300 else 0.02 if step < 620 else LATE


g = torch.Generator().manual_seed(34)
y = torch.randint(0, 6, (16 * 800,), generator=g)
x = torch.randn(6, 1, 6, 6, generator=g)[y] + 0.8 * torch.randn(len(y), 1, 6, 6, generator=g)
net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 24), nn.ReLU(), nn.Linear(24, 6))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), 1):
    opt.param_groups[0]["weight_decay"] = decay_at(step)
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
