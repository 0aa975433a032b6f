# expect: healthy
# fault: weight decay set to 30 in mid run
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(15)
PHASES = [
    {"start": 0, "lr": 4e-3, "wd": 0.01},
    {"start": 60, "lr": 4e-3, "wd": 0.3},
]
proto = torch.randn(10, 32)
net = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 10))
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
for step in range(150):
    for ph in PHASES:
        if step == ph["start"]:
            opt.param_groups[0].update(lr=ph["lr"], weight_decay=ph["wd"])
    y = torch.randint(0, 10, (48,))
    x = proto[y] + torch.randn(48, 32)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 4))
