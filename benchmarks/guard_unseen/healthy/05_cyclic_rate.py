# Healthy: triangular cyclic rate over a factor of 20, SGD with momentum.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(5)
w = torch.randn(12, 4, generator=g)
x = torch.randn(5000, 12, generator=g)
y = (x @ w + 2 * torch.randn(5000, 4, generator=g)).argmax(1)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9)
sched = torch.optim.lr_scheduler.CyclicLR(opt, 0.005, 0.1, step_size_up=150, cycle_momentum=False)
for step in range(2400):
    i = torch.randint(0, 4500, (32,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 200 == 0:
        print(step, loss.item(), sched.get_last_lr()[0])
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[4500:]), y[4500:]).item())
