# expect: healthy
# fault: frozen layers, groups added to the optimizer later
# note: ULMFiT-like fine-tuning: first the head, then add_param_group for the upper and the lower layer with smaller rates.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(45)
low = nn.Sequential(nn.Linear(20, 48), nn.ReLU())
high = nn.Sequential(nn.Linear(48, 48), nn.ReLU())
old_head, head = nn.Linear(48, 6), nn.Linear(48, 4)
W = torch.randn(20, 6)


def source(n=64):
    x = torch.randn(n, 20)
    return x, (x @ W).argmax(1)


def goal(n=64):
    x = torch.randn(n, 20)
    return x, (x.abs() @ W[:, :4] + x @ W[:, 2:]).argmax(1)


pre = nn.Sequential(low, high, old_head)
opt = torch.optim.Adam(pre.parameters(), lr=3e-3)
for _ in range(60):
    x, y = source()
    opt.zero_grad()
    nn.functional.cross_entropy(pre(x), y).backward()
    opt.step()

net = nn.Sequential(low, high, head)
low.requires_grad_(False)
high.requires_grad_(False)
opt = torch.optim.Adam(head.parameters(), lr=5e-3)
for step in range(180):
    if step == 50:
        high.requires_grad_(True)
        opt.add_param_group({"params": high.parameters(), "lr": 3e-3})
    if step == 100:
        low.requires_grad_(True)
        opt.add_param_group({"params": low.parameters(), "lr": 2e-3})
    x, y = goal()
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, len(opt.param_groups), f"{loss.item():.4f}")
