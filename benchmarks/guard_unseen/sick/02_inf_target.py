# House prices on a log scale, RMSprop. Fault: two targets of step 305 are log(0) = -inf.
import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
opts = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.zone = nn.Embedding(20, 8)
        self.body = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.head = nn.Linear(48, 1)

    def forward(self, zone, x):
        return self.head(self.body(torch.cat([self.zone(zone), x], 1))).squeeze(1)


g = torch.Generator().manual_seed(5)
zone_worth = torch.randn(20, generator=g)
coef = torch.randn(6, generator=g) * 0.4


def houses(n):
    z = torch.randint(0, 20, (n,), generator=g)
    x = torch.randn(n, 6, generator=g)
    price = torch.exp(zone_worth[z] + x @ coef + 0.3 * (x[:, 0] * x[:, 1]) + 0.2 * torch.randn(n, generator=g))
    return z, x, price


Z, X, P = houses(5000)
hz, hx, hp = houses(2000)
torch.manual_seed(opts.seed)
net = Net()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.5)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=250, gamma=0.4)
for it in range(800):
    i = torch.randint(0, 5000, (50,))
    price = P[i].clone()
    if it == 305 and not opts.twin:
        price[[3, 17]] = 0.0
    loss = F.mse_loss(net(Z[i], X[i]), price.log())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    if it % 100 == 0:
        print("iter", it, "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", F.mse_loss(net(hz, hx), hp.log()).item())
