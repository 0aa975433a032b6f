# Click model with Adagrad. Fault: the weights of the rows of step 60 are 1e7: the sums of squares never recover.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(291)
w = torch.randn(14, 1, generator=g)


def draw(n):
    x = torch.randn(n, 14, generator=g)
    p = torch.sigmoid(x @ w + 1.5 * (x[:, :1] * x[:, 1:2]))
    return x, torch.bernoulli(p, generator=g)


x, y = draw(8000)
hx, hy = draw(3000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adagrad(net.parameters(), lr=0.03)
for step in range(900):
    i = torch.randint(0, 8000, (64,))
    weight = torch.ones(64, 1)
    if step == 60 and not args.twin:
        weight *= 1e7
    loss = nn.functional.binary_cross_entropy_with_logits(net(x[i]), y[i], weight=weight)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 90 == 0:
        print("step", step, "logloss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.binary_cross_entropy_with_logits(net(hx), hy).item())
