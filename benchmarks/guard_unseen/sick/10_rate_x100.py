# LSTM forecaster, SGD with Nesterov momentum, clipped. Fault: from step 260 on the rate is 100 times too large.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(51)


def series(n):
    t = torch.arange(25.0)
    f = 0.2 + 0.6 * torch.rand(n, 1, generator=g)
    ph = 6.28 * torch.rand(n, 1, generator=g)
    s = torch.sin(f * t + ph) + 0.3 * torch.randn(n, 25, generator=g)
    return s[:, :-1, None], s[:, 1:, None]


x, y = series(4000)
hx, hy = series(1000)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, s):
        return self.out(self.lstm(s)[0])


torch.manual_seed(args.seed)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(600):
    if step == 260 and not args.twin:
        for grp in opt.param_groups:
            grp["lr"] *= 100
    i = torch.randint(0, 4000, (32,))
    loss = nn.functional.mse_loss(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 40 == 0:
        print(f"{step:5d} loss {loss.item():.4f} norm {norm:.3f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
