# Dilated convolutions over a series, SGD with Nesterov momentum. Fault: an infinite reading at step 450 enters the
# running normaliser, which is a plain tensor of the script: every later batch is NaN.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(12)


def series(n, g=None):
    t = torch.arange(40.0)
    phase = torch.rand(n, 3, 1, generator=g) * 6.3
    x = (torch.sin(t * torch.tensor([[0.3], [0.7], [1.1]]) + phase)).sum(1) * 20 + 100
    return x + torch.randn(n, 40, generator=g) * 5


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(1 if i == 0 else 24, 24, 2, dilation=2**i) for i in range(4)])
        self.out = nn.Conv1d(24, 1, 1)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = torch.relu(conv(nn.functional.pad(x, (2**i, 0))))
        return self.out(x)[:, 0]


def forecast(model, z):
    return nn.functional.mse_loss(model(z[:, None, :-1])[:, 16:], z[:, 17:])


test = series(800, fixed)
torch.manual_seed(args.seed)
model = Tcn()
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.996)
mean, power = torch.tensor(100.0), torch.tensor(10500.0)
for step in range(650):
    x = series(24)
    if step == 450 and not args.twin:
        x[7, 21] = float("inf")
    mean = 0.99 * mean + 0.01 * x.mean()
    power = 0.99 * power + 0.01 * x.pow(2).mean()
    loss = forecast(model, (x - mean) / (power - mean**2).sqrt())
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", forecast(model, (test - 100) / 25.0).item())
