# expect: sick
# symptom: loss falls for some steps, swings ever wider from about step 40 on, NaN before step 100
# axis: optimizer
# cause: momentum is set to 0.999 from step 20 on at an unchanged rate
# says: (?i)momentum
# onset_step: 20
# fix: momentum 0.9 instead of 0.999
# mended: MENDED=1 python s24_momentum_plan.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(25)
PLAN = {1: 0.5, 20: 0.9 if os.environ.get("MENDED") == "1" else 0.999}


def digits(n):
    g = torch.Generator().manual_seed(13)
    proto = torch.randn(10, 1, 8, 8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    return TensorDataset(proto[y] + 0.9 * torch.randn(n, 1, 8, 8, generator=g), y)


class LeNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.f1, self.f2 = nn.Linear(16 * 4 * 4, 48), nn.Linear(48, 10)

    def forward(self, x):
        x = torch.relu(self.c2(torch.relu(self.c1(x))))
        return self.f2(torch.relu(self.f1(x.flatten(1))))


net = LeNetish()
opt = torch.optim.SGD(net.parameters(), lr=0.06, momentum=0.5)
for step, (x, y) in enumerate(DataLoader(digits(64 * 220), batch_size=64, shuffle=True), 1):
    if step in PLAN:
        for group in opt.param_groups:
            group["momentum"] = PLAN[step]
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
