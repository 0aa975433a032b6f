# Healthy: the sequence length grows from 4 to 32 in four stages; summed loss grows with it. GRU, clipped.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
torch.manual_seed(args.seed)
rnn, out = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)
params = [*rnn.parameters(), *out.parameters()]
opt = torch.optim.Adam(params, lr=2e-3)


def batch(length, n=24):
    x = torch.randn(n, length, 1)
    return x, x.cumsum(1) / 2 + 0.1 * torch.randn(n, length, 1)


for step in range(1200):
    x, y = batch(4 * 2 ** (step // 300))
    loss = (out(rnn(x)[0]) - y).pow(2).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 5.0)
    opt.step()
    if step % 100 == 0:
        print("step", step, "length", x.shape[1], "loss", loss.item())
with torch.no_grad():
    x, y = batch(32, 500)
    print("final:", (out(rnn(x)[0]) - y).pow(2).mean().item())
