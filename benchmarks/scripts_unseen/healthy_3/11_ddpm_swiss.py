# expect: healthy
# fault: a noisy loss that soon goes flat
# note: diffusion on a swiss roll: the noise-prediction loss has a floor well above 0 and large batch noise; that is how it looks.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(12)
T = 60
betas = torch.linspace(1e-4, 0.12, T)
abar = torch.cumprod(1 - betas, 0)


def roll(n):
    t = 1.5 * torch.pi * (1 + 2 * torch.rand(n))
    return torch.stack([t * torch.cos(t), t * torch.sin(t)], 1) / 8 + 0.03 * torch.randn(n, 2)


class EpsNet(nn.Module):
    def __init__(self, h=96):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(
            nn.Linear(18, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 2)
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


net = EpsNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
hist = []
for i in range(300):
    x0, t, eps = roll(96), torch.randint(0, T, (96,)), torch.randn(96, 2)
    xt = abar[t, None].sqrt() * x0 + (1 - abar[t, None]).sqrt() * eps
    loss = nn.functional.mse_loss(net(xt, t), eps)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hist.append(loss.item())
    if i % 30 == 29:
        print(i, sum(hist[-30:]) / 30)
