# Healthy: the targets grow from a millionth to full size in 500 steps: the loss goes from 1e-10 to 1.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(59)
w = torch.randn(6, 12, generator=fixed) / 2


def draw(n, g=None):
    x = torch.randn(n, 6, generator=g)
    return x, torch.sin(x @ w)[:, :3] * 2 + 0.5 * torch.randn(n, 3, generator=g)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
nn.init.zeros_(model[-1].weight)
nn.init.zeros_(model[-1].bias)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
warm = torch.optim.lr_scheduler.LinearLR(opt, 1e-3, 1.0, total_iters=500)
for step in range(1300):
    x, y = draw(64)
    size = 10.0 ** (-6 + 6 * min(1.0, step / 500))
    loss = nn.functional.mse_loss(model(x), y * size)
    opt.zero_grad()
    loss.backward()
    opt.step()
    warm.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.3e}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test[0]), test[1]).item())
