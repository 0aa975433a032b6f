# 1-d convolutions over a signal, SGD with momentum, cosine with warm restarts. Fault: before the restart at step 600 the base
# rate is set for the batch size of another machine (x100).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(28)
shapes = torch.randn(5, 1, 9, generator=fixed)


def signals(n, g=None):
    label = torch.randint(0, 5, (n,), generator=g)
    x = torch.randn(n, 1, 48, generator=g)
    start = torch.randint(0, 39, (n,), generator=g)
    for k in range(n):
        x[k, 0, start[k] : start[k] + 9] += 1.3 * shapes[label[k], 0]
    return x, label


test = signals(1500, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Conv1d(1, 16, 9),
    nn.ReLU(),
    nn.Conv1d(16, 24, 5),
    nn.ReLU(),
    nn.AdaptiveMaxPool1d(1),
    nn.Flatten(),
    nn.Linear(24, 5),
)
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=200)
for step in range(700):
    if step == 599 and not args.twin:
        sched.base_lrs = [rate * 100 for rate in sched.base_lrs]
    x, label = signals(32)
    loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} rate {opt.param_groups[0]['lr']:.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
