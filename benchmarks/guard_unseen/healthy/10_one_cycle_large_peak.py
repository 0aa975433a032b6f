# Healthy: super-convergence, one cycle with a large peak; the loss rises at the peak and falls after it.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(10)
w = torch.randn(14, 6, generator=g)
x = torch.randn(6000, 14, generator=g)
y = (x @ w + 3 * torch.randn(6000, 6, generator=g)).argmax(1)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Linear(14, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6)
)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=1400)
for step in range(1400):
    i = torch.randint(0, 5000, (64,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 100 == 0:
        print("step", step, "lr", sched.get_last_lr()[0], "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[5000:]), y[5000:]).item())
