# Attention over a set, AdamW, one-cycle. Fault: before step 520 queries and keys are multiplied by 20 (a wrong merge).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(131)


def sets(n):
    x = torch.randn(n, 10, 6, generator=g)
    weight = torch.softmax(2 * x[..., 0], 1)
    y = (weight[..., None] * x[..., 1:4]).sum(1) + 0.15 * torch.randn(n, 3, generator=g)
    return x, y


x, y = sets(6000)
hx, hy = sets(1500)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 32)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.out = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3))

    def forward(self, x):
        h = self.inp(x)
        att = torch.softmax(self.q(h) @ self.k(h).transpose(1, 2) / 32**0.5, -1)
        return self.out((h + att @ self.v(h)).mean(1))


torch.manual_seed(args.seed)
net = Pool()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=600, pct_start=0.2)
for step in range(600):
    if step == 520 and not args.twin:
        with torch.no_grad():
            for p in (*net.q.parameters(), *net.k.parameters()):
                p.mul_(20.0)
    i = torch.randint(0, 6000, (64,))
    loss = nn.functional.mse_loss(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.5f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
