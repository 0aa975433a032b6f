# A CNN with warm restarts of the cosine schedule (after 80, 240 and 560 steps), SGD. The loss goes up at each restart.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(335)
stamp = torch.randn(6, 1, 9, 9, generator=fixed) * 0.5


def images(n, g=None):
    y = torch.randint(0, 6, (n,), generator=g)
    return stamp[y] + torch.randn(n, 1, 9, 9, generator=g), y


test_x, test_y = images(2000, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 6)
)
opt = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=80, T_mult=2, eta_min=1e-4)
for step in range(560):
    x, y = images(24)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(step, f"loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(test_x), test_y).item())
