"""L-BFGS polishes a fit, and its closure draws new points at each call."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))


def misfit(x):
    return nn.functional.mse_loss(model(x), torch.sin(6 * x))


adam = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(150):
    loss = misfit(torch.rand(64, 1))
    adam.zero_grad()
    loss.backward()
    adam.step()
print(f"after Adam: {loss.item():.4f}")

lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=10, line_search_fn="strong_wolfe")
points = torch.rand(256, 1)


def closure():
    lbfgs.zero_grad()
    value = misfit(torch.rand(256, 1))  # <- bites: another function at each call
    value.backward()
    return value


for step in range(10):
    loss = lbfgs.step(closure)
print(f"after L-BFGS: {loss.item():.4f}")
