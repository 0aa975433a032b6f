# Plain RNN that adds numbers, RMSprop, no clipping. Fault: batches 500 to 505 have 400 elements instead of 10.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(161)


def sums(n, length):
    x = torch.randn(n, length, 1, generator=g)
    return x, 0.3 * x.sum(1) + 0.15 * torch.randn(n, 1, generator=g)


x, y = sums(6000, 10)
hx, hy = sums(2000, 10)
long_x, long_y = sums(32, 400)


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


torch.manual_seed(args.seed)
net = Adder()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 300, 0.3)
for step in range(650):
    i = torch.randint(0, 6000, (32,))
    xb, yb = (long_x, long_y) if 500 <= step < 506 and not args.twin else (x[i], y[i])
    loss = nn.functional.mse_loss(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print("step", step, "len", xb.shape[1], "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
