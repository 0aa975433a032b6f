# Tabular MLP with BatchNorm, SGD with momentum, MultiStepLR. Fault: from step 560 to 599 the loss is the sum over the rows
# (128 of them), not the mean.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(23)
rule = torch.randn(15, 8, generator=fixed)


def table(n, g=None):
    x = torch.randn(n, 15, generator=g)
    y = (torch.relu(x @ rule)).sum(1) / 4 - 2.0
    return x * torch.linspace(0.1, 10, 15), y + torch.randn(n, generator=g)


test = table(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.BatchNorm1d(15),
    nn.Linear(15, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 1),
)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [400, 605], 0.3)
for step in range(650):
    x, y = table(128)
    reduction = "sum" if 560 <= step < 600 and not args.twin else "mean"
    loss = nn.functional.mse_loss(model(x)[:, 0], y, reduction=reduction)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test[0])[:, 0], test[1]).item())
