# Residual LayerNorm net, Adam, exponential decay. Fault: from step 480 on the exponent has lost its sign: the rate grows by 2.5 %
# a step and the loss goes away slowly.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(30)
w = torch.randn(16, 10, generator=fixed) / 3


def draw(n, g=None):
    x = torch.randn(n, 16, generator=g)
    y = torch.sin(x @ w).sum(1, keepdim=True) * torch.tanh(x[:, :1])
    return x, y + torch.randn(n, 1, generator=g)


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.f(x)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(16, 48), Residual(48), Residual(48), nn.LayerNorm(48), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def decay(step):
    if step < 480 or args.twin:
        return 0.999**step
    return 0.999**480 * 1.025 ** (step - 480)


sched = torch.optim.lr_scheduler.LambdaLR(opt, decay)
for step in range(700):
    x, y = draw(96)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f} rate {sched.get_last_lr()[0]:.2e}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test[0]), test[1]).item())
