# expect: healthy
# fault: none
# note: Gaussian NLL with a learned variance; the loss goes below zero rightly.
import torch
from torch import nn


class Prob(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mu, self.lv = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        h = self.b(x)
        return self.mu(h), self.lv(h).clamp(-7, 5).exp()


torch.manual_seed(39)
m = Prob()
opt = torch.optim.Adam(m.parameters(), lr=2e-3)
nll = nn.GaussianNLLLoss()
for s in range(280):
    x = torch.randn(96, 3)
    y = 0.3 * x[:, :1] - 0.2 * x[:, 1:2] + (0.05 + 0.05 * x[:, 2:].sigmoid()) * torch.randn(96, 1)
    mu, v = m(x)
    loss = nll(mu, y, v)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 2.0)
    opt.step()
    if s % 28 == 0:
        print(s, round(loss.item(), 4))
