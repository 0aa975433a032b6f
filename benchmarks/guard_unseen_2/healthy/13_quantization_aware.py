# Healthy: from 800 on the weights are rounded to 3 bits in the forward pass (straight-through).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(53)
w = torch.randn(12, 5, generator=fixed)


class Rounded(nn.Linear):
    bits = 0

    def forward(self, x):
        weight = self.weight
        if self.bits:
            unit = weight.detach().abs().amax(1, keepdim=True) / (2 ** (self.bits - 1) - 1)
            weight = weight + ((weight / unit).round() * unit - weight).detach()
        return nn.functional.linear(x, weight, self.bias)


def draw(n, g=None):
    x = torch.randn(n, 12, generator=g)
    return x, (torch.sin(x) @ w + torch.randn(n, 5, generator=g)).argmax(1)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(Rounded(12, 64), nn.ReLU(), Rounded(64, 64), nn.ReLU(), Rounded(64, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=200, T_mult=2)
for step in range(1400):
    if step == 800:
        for layer in model[::2]:
            layer.bits = 3
    x, label = draw(64)
    loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
