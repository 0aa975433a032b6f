# Tabular regression, AdamW with a cosine. Fault: one batch of step 420 has rows of NaN (a gap in the sensor log).
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()

task = torch.Generator().manual_seed(11)
w1, w2 = torch.randn(16, 24, generator=task) / 4, torch.randn(24, 1, generator=task) / 3


def table(n):
    x = torch.randn(n, 16, generator=task)
    return x, torch.tanh(x @ w1) @ w2 + 0.15 * torch.randn(n, 1, generator=task)


train, held = table(6400), table(2000)
torch.manual_seed(args.seed)
loader = DataLoader(TensorDataset(*train), batch_size=64, shuffle=True)
net = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=900)
step = 0
for epoch in range(9):
    for x, y in loader:
        if step == 420 and not args.twin:
            x[5:9] = float("nan")
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        step += 1
    print(f"epoch {epoch} train loss {loss.item():.4f}")
net.eval()
with torch.no_grad():
    print(f"final: {nn.functional.mse_loss(net(held[0]), held[1]).item():.6f}")
