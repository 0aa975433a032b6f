# expect: healthy
# fault: none
# note: a small diffusion model with a deep-copied EMA; the loss is noisy as the time step is drawn at random.
import copy
import torch
from torch import nn


class Eps(nn.Module):
    def __init__(self, T=40, h=96):
        super().__init__()
        self.t, self.i, self.m, self.o = nn.Embedding(T, h), nn.Linear(2, h), nn.Linear(h, h), nn.Linear(h, 2)

    def forward(self, x, t):
        return self.o(nn.functional.silu(self.m(nn.functional.silu(self.i(x) + self.t(t)))))


torch.manual_seed(28)
abar = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 40), 0)
net = Eps()
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for s in range(250):
    th = torch.rand(128) * 6.283
    x0 = torch.stack([th.cos(), th.sin()], 1)
    t = torch.randint(0, 40, (128,))
    e, a = torch.randn(128, 2), abar[t][:, None]
    loss = (net(a.sqrt() * x0 + (1 - a).sqrt() * e, t) - e).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), net.parameters()):
            p.mul_(0.98).add_(q, alpha=0.02)
    if s % 25 == 0:
        print(s, round(loss.item(), 4))
