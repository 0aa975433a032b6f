# Healthy: continual learning: every 300 steps another labelling of the same inputs, no replay.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(42)
rules = torch.randn(5, 12, 4, generator=fixed)


def draw(n, task, g=None):
    x = torch.randn(n, 12, generator=g)
    return x, (x @ rules[task]).argmax(1)


test = draw(1500, 4, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(1500):
    x, label = draw(32, step // 300)
    loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step} task {step // 300} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
