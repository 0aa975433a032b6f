# Mixture of four experts with a balance loss, AdamW. Fault: batches 540 to 542 are x1e3 (a unit mix-up).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(251)
maps = torch.randn(4, 10, 3, generator=g) / 2


def draw(n):
    x = torch.randn(n, 10, generator=g)
    kind = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    return x, torch.einsum("ni,nio->no", x, maps[kind]) + 0.5 * torch.randn(n, 3, generator=g)


x, y = draw(8000)
hx, hy = draw(2000)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(10, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3)) for _ in range(4))

    def forward(self, x):
        p = torch.softmax(self.router(x), 1)
        top, which = p.topk(2, 1)
        gate = torch.zeros_like(p).scatter(1, which, top / top.sum(1, keepdim=True))
        out = torch.stack([e(x) for e in self.experts], 1)
        balance = 4 * (p.mean(0) * (gate > 0).float().mean(0)).sum()
        return (gate[..., None] * out).sum(1), balance


torch.manual_seed(args.seed)
net = MoE()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
for step in range(640):
    i = torch.randint(0, 8000, (64,))
    xb, yb = x[i], y[i]
    if 540 <= step < 543 and not args.twin:
        xb, yb = xb * 1e3, yb * 1e6
    out, balance = net(xb)
    loss = nn.functional.mse_loss(out, yb) + 0.01 * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 0:
        print("step", step, "loss", loss.item(), "balance", balance.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx)[0], hy).item())
