# Pruning while training, SGD with momentum. From step 150 on each layer is masked after each step and scaled by the share of its
# weights that stay; the threshold is ten times too high, so that none stay: 0 / 0 in every weight, after every step.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(319)
proto = torch.randn(6, 20, generator=fixed) * 0.7


def draw(n, g=None):
    y = torch.randint(0, 6, (n,), generator=g)
    return proto[y] + torch.randn(n, 20, generator=g), y


def prune(model, threshold):
    with torch.no_grad():
        for w in (p for p in model.parameters() if p.dim() == 2):
            keep = (w.abs() > threshold).float()
            w.mul_(keep).mul_(w.abs().sum() / (w * keep).abs().sum())


test_x, test_y = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 6))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(500):
    x, y = draw(32)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step >= 150:
        prune(model, 0.01 if args.twin else 10.0)
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test_x), test_y).item())
