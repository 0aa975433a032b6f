# expect: sick
# symptom: the total falls while the tasks learn less
# axis: loss
# cause: learned weights of the losses have no term that keeps them from running away
# says: (weight|uncertain|variance|sigma|log.?var|balanc).{0,160}
# onset_step: 0
# fix: add the term of the weights
# mended: the same with the fix
import math
import os
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(30)

# a heat-like equation u' = -k u on [0, 2] with u(0) = 1, fitted with a small net
k = 1.5
t_obs = torch.linspace(0, 2, 12).unsqueeze(1)
u_obs = torch.exp(-k * t_obs) + 0.15 * torch.randn_like(t_obs)

net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
sigma = nn.ParameterDict(
    {
        "ode": nn.Parameter(torch.tensor(1.0)),
        "start": nn.Parameter(torch.tensor(1.0)),
        "data": nn.Parameter(torch.tensor(1.0)),
    }
)


def residuals():
    t = (2 * torch.rand(40, 1)).requires_grad_(True)
    u = net(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    zero = torch.zeros(1, 1)
    return {
        "ode": (du + k * u).pow(2).mean(),
        "start": (net(zero) - 1).pow(2).mean(),
        "data": (net(t_obs) - u_obs).pow(2).mean(),
    }


def objective(terms):
    total = 0.0
    for name, term in terms.items():
        s = sigma[name]
        total = total + term / (2 * s**2)
        if MENDED:
            total = total + torch.log1p(s**2)
    return total


opt = torch.optim.Adam(
    [
        {"params": net.parameters(), "lr": 5e-3},
        {"params": sigma.parameters(), "lr": 2e-2, "betas": (0.9, 0.95)},
    ]
)

for epoch in range(150):
    terms = residuals()
    loss = objective(terms)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (epoch + 1) % 25 == 0:
        print(
            f"epoch {epoch + 1} loss {loss.item():.5f}",
            {n: round(v.item(), 5) for n, v in terms.items()},
            "sigma",
            {n: round(sigma[n].item(), 3) for n in terms},
        )

with torch.no_grad():
    grid = torch.linspace(0, 2, 50).unsqueeze(1)
    err = (net(grid).flatten() - torch.exp(-k * grid).flatten()).abs().max().item()
print(f"largest error {err:.4f}, u(2) = {net(torch.tensor([[2.0]])).item():.4f} vs {math.exp(-2 * k):.4f}")
