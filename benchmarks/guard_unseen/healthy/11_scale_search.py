# Healthy: a GradScaler that searches its scale with fp16 gradients emulated; it skips steps itself now and then.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(11)
w = torch.randn(10, 3, generator=g) / 2
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
for p in net.parameters():
    p.register_hook(lambda grad: grad.half().float())
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=150)
for step in range(1500):
    x = torch.randn(32, 10)
    loss = nn.functional.mse_loss(net(x), torch.relu(x @ w) + 0.3 * torch.randn(32, 3))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 150 == 0:
        print("step", step, loss.item(), "scale", scaler.get_scale())
net.eval()
with torch.no_grad():
    hx = torch.randn(2000, 10, generator=g)
    print("final:", nn.functional.mse_loss(net(hx), torch.relu(hx @ w)).item())
