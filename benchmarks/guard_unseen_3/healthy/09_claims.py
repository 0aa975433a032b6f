# Insurance claims (log-normal, the largest is thousands of times the median) by their columns, gamma likelihood, Adam, with the
# gradient norm clipped at 5 by the script itself.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(339)
w = torch.randn(12, 3, generator=fixed) / 2


def claims(n, g=None):
    x = torch.randn(n, 12, generator=g)
    return x, (torch.tanh(x @ w).sum(1) + 1.6 * torch.randn(n, generator=g)).exp()


def gamma_loss(log_mean, y):
    return (y * (-log_mean).exp() + log_mean).mean()


test_x, test_y = claims(8000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(900):
    x, y = claims(40)
    loss = gamma_loss(model(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    if step % 60 == 0:
        print(f"{step} loss {loss.item():.3f} norm {norm.item():.2f} largest claim {y.max().item():.1f}")
with torch.no_grad():
    print("final:", gamma_loss(model(test_x).squeeze(1), test_y).item())
