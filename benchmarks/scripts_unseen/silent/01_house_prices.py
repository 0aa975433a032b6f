# EXPECT: sick
# FAULT: learning rate is zero
# ONSET: 1
# SAYS: learning rate|lr|rate
"""Tabular price regressor. Linear scaling rule for the batch size."""

import argparse
import torch
from torch import nn

torch.set_num_threads(1)
ap = argparse.ArgumentParser()
ap.add_argument("--base-lr", type=float, default=2e-3)
ap.add_argument("--batch-size", type=int, default=64)
ap.add_argument("--epochs", type=int, default=6)
ap.add_argument("--seed", type=int, default=17)
args = ap.parse_args()

torch.manual_seed(args.seed)
n = 1280
feats = torch.randn(n, 9)
price = (feats[:, 0] * 1.5 - feats[:, 1] * feats[:, 2] + 0.4 * feats[:, 5].abs() + 0.05 * torch.randn(n)).unsqueeze(1)

net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
# Goyal et al.: scale the rate with the batch
lr = args.base_lr * (args.batch_size // 256)
opt = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.01)
crit = nn.MSELoss()

step = 0
for epoch in range(args.epochs):
    order = torch.randperm(n)
    for chunk in order.split(args.batch_size):
        opt.zero_grad()
        loss = crit(net(feats[chunk]), price[chunk])
        loss.backward()
        opt.step()
        step += 1
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} mse {loss.item():.4f}")
