# Healthy: two tasks take turns, one with a loss near 1, one with a loss near 100.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(43)
w = torch.randn(10, 6, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 10, generator=g)
    h = torch.tanh(x @ w)
    return x, h.argmax(1), 12 * h.sum(1) + 9 * torch.randn(n, generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU())
        self.kind, self.size = nn.Linear(48, 6), nn.Linear(48, 1)

    def loss(self, x, label, y, task):
        h = self.body(x)
        if task == 0:
            return nn.functional.cross_entropy(self.kind(h), label)
        return nn.functional.mse_loss(self.size(h)[:, 0], y)


test = draw(2000, fixed)
torch.manual_seed(args.seed)
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1500):
    task = int(torch.rand(()) < 0.5)
    loss = model.loss(*draw(32), task)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, "kind" if task == 0 else "size", f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", model.loss(*test, 0).item())
