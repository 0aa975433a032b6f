# Healthy: SWA: after 700 steps the rate goes up from almost nothing to a high constant and the weights are averaged.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

fixed = torch.Generator().manual_seed(54)
w = torch.randn(14, 6, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 14, generator=g)
    return x, (torch.tanh(x * 2) @ w + torch.randn(n, 6, generator=g)).argmax(1)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Linear(14, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6)
)
average = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
down = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 700)
up = SWALR(opt, swa_lr=0.2, anneal_epochs=5)
for step in range(1300):
    x, label = draw(64)
    loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step < 700:
        down.step()
    else:
        up.step()
        if step % 10 == 0:
            average.update_parameters(model)
    if step % 50 == 0:
        print(step, f"{loss.item():.4f} rate {opt.param_groups[0]['lr']:.4f}")
update_bn([draw(64)[0] for _ in range(20)], average)
average.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(average(test[0]), test[1]).item())
