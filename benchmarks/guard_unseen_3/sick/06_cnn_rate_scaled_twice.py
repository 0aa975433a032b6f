# A small CNN, SGD with Nesterov momentum, cosine schedule. The job is moved to another machine at step 400, and its launcher
# multiplies the rate by the number of devices (64) although the config holds the product already.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(306)
stamp = torch.randn(8, 1, 12, 12, generator=fixed) * 0.45


def images(n, g=None):
    y = torch.randint(0, 8, (n,), generator=g)
    return stamp[y] + torch.randn(n, 1, 12, 12, generator=g), y


test_x, test_y = images(2500, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 24, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(216, 8),
)
opt = torch.optim.SGD(net.parameters(), lr=0.012, momentum=0.9, nesterov=True, weight_decay=5e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 700)
for step in range(700):
    if step == 400 and not args.twin:
        for group in opt.param_groups:
            group["lr"] *= 64
        sched.base_lrs = [r * 64 for r in sched.base_lrs]
    x, y = images(32)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"{step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(test_x), test_y).item())
