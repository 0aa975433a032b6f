# expect: healthy
# fault: none
# note: full-batch L-BFGS with a closure called many times a step.
import torch
from torch import nn

torch.manual_seed(33)
x = torch.linspace(-3, 3, 120)[:, None]
y = torch.sin(2 * x) + 0.05 * torch.randn_like(x)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=5, history_size=10, line_search_fn="strong_wolfe")
for s in range(60):

    def closure():
        opt.zero_grad()
        l = nn.functional.mse_loss(net(x), y)
        l.backward()
        return l

    l = opt.step(closure)
    if s % 6 == 0:
        print(s, l.item())
