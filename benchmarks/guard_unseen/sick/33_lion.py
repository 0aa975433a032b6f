# An own Lion, polynomial decay. Fault: in steps 700 to 714 the weight decay is 5000 instead of 0.1 (a sweep's leftover).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=3e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


g = torch.Generator().manual_seed(281)
w = torch.randn(20, 5, generator=g) / 2


def draw(n):
    x = torch.randn(n, 20, generator=g)
    return x, (x @ w + 0.5 * torch.randn(n, 5, generator=g)).argmax(1)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
opt = Lion(net.parameters(), lr=1e-3, weight_decay=0.1)
sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=760, power=1.0)
for step in range(750):
    opt.param_groups[0]["weight_decay"] = 5e3 if 700 <= step < 715 and not args.twin else 0.1
    i = torch.randint(0, 8000, (64,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 75 == 0:
        print("step", step, "loss", round(loss.item(), 4))
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
