# bf16 autocast with a GradScaler on the CPU, SGD, clipped after unscale. Fault: step 400, one row's features are 1e6.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(261)
w = torch.randn(16, 5, generator=g) / 2


def draw(n):
    x = torch.randn(n, 16, generator=g)
    return x, torch.relu(x @ w) + 0.4 * torch.randn(n, 5, generator=g)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=200)
for step in range(520):
    i = torch.randint(0, 8000, (32,))
    xb = x[i].clone()
    if step == 400 and not args.twin:
        xb[7] = 1e6
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(xb).float(), y[i])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 100.0)
    scaler.step(opt)
    scaler.update()
    if step % 50 == 0:
        print("step", step, "loss", loss.item(), "scale", scaler.get_scale())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
