# Emulated fp16 with a static loss scale, SGD. Fault: in steps 400 to 407 the scale is 2^24: gradients overflow to Inf.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(141)
w = torch.randn(14, 6, generator=g) / 2


def draw(n):
    x = torch.randn(n, 14, generator=g)
    return x, (x @ w + 1.0 * torch.randn(n, 6, generator=g)).argmax(1)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 6))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(700):
    scale = 2.0**24 if 400 <= step < 408 and not args.twin else 2.0**10
    i = torch.randint(0, 8000, (64,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    (loss * scale).backward()
    for p in net.parameters():
        p.grad = p.grad.half().float() / scale  # what the fp16 backward would have stored
    opt.step()
    if step % 100 == 0:
        print(step, loss.item(), "scale", scale)
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
