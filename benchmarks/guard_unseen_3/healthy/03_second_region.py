# Prices of one region for 300 steps, then of another one in a currency worth a hundredth: targets and gradients become 100 times
# larger. RMSprop, which takes that in its stride.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(333)
w = torch.randn(2, 10, 4, generator=fixed) / 2


def region(k, n, g=None):
    x = torch.randn(n, 10, generator=g)
    y = 1 + torch.tanh(x @ w[k]).sum(1) + 0.3 * torch.randn(n, generator=g)
    return torch.cat([x, torch.full((n, 1), float(k))], 1), y * (100 if k else 1)


test_x, test_y = region(1, 3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.95)
for step in range(900):
    x, y = region(int(step >= 300), 48)
    loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.smooth_l1_loss(model(test_x).squeeze(1), test_y).item())
