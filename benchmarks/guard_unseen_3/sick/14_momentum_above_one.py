# An autoencoder, SGD with a momentum that goes up and down. The cycle is written for a peak of 0.95; for 30 steps from step 150
# the value read from the config is 1.2.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(314)
basis = torch.randn(5, 40, generator=fixed) / 2


def signals(n, g=None):
    return torch.tanh(torch.randn(n, 5, generator=g) @ basis) + 0.25 * torch.randn(n, 40, generator=g)


test = signals(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(40, 48), nn.ReLU(), nn.Linear(48, 6), nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 40))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.85)
for step in range(700):
    peak = step % 300 >= 150 and step % 300 < 180
    beta = 0.95 if peak else 0.85
    if 150 <= step < 180 and not args.twin:
        beta = 1.2
    opt.param_groups[0]["momentum"] = beta
    x = signals(48)
    loss = nn.functional.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.5f} momentum {beta}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test), test).item())
