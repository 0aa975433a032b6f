# Deep residual MLP, Adam. Fault: at step 500 the rate becomes 30 times too large, for good.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(41)
w = torch.randn(10, 16, generator=g) / 2
v = torch.randn(16, 2, generator=g) / 2


def data(n):
    x = torch.randn(n, 10, generator=g)
    return x, torch.sin(x @ w) @ v + 0.3 * torch.randn(n, 2, generator=g)


class Res(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.f(x)


x, y = data(8000)
hx, hy = data(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(10, 48), Res(48), Res(48), Res(48), nn.Linear(48, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(1000):
    if step == 500 and not args.twin:
        opt.param_groups[0]["lr"] = 3e-2
    i = torch.randint(0, 8000, (64,))
    loss = nn.functional.mse_loss(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
