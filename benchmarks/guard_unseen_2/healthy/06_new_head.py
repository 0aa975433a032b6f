# Healthy: the head is initialized again on purpose at 600 and gets a new optimizer; other labels from there on.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(46)
proto = torch.randn(12, 1, 10, 10, generator=fixed) * 0.6


def draw(n, coarse, g=None):
    k = torch.randint(0, 12, (n,), generator=g)
    return proto[k] + torch.randn(n, 1, 10, 10, generator=g), k // 4 if coarse else k


test = draw(1500, False, fixed)
torch.manual_seed(args.seed)
body = nn.Sequential(
    nn.Conv2d(1, 12, 3),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.Conv2d(12, 24, 3, 2),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(216, 48),
)
head = nn.Linear(48, 3)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.02, momentum=0.9, nesterov=True)
for step in range(1200):
    if step == 600:
        head = nn.Linear(48, 12)
        opt = torch.optim.Adam([{"params": head.parameters(), "lr": 5e-3}, {"params": body.parameters(), "lr": 5e-4}])
    x, label = draw(24, step < 600)
    loss = nn.functional.cross_entropy(head(body(x)), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
body.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(head(body(test[0])), test[1]).item())
