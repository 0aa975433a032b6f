# expect: healthy
# cause: none, a diffusion model that predicts the noise, whose loss falls quickly to a noisy floor and then seems to stand still
import math

import torch
from torch import nn

torch.manual_seed(50)
STEPS = 50
beta = torch.linspace(1e-3, 0.15, STEPS)
alpha_bar = torch.cumprod(1 - beta, 0)


def moons(n):
    t = math.pi * torch.rand(n)
    up = torch.rand(n) < 0.5
    x = torch.where(up, t.cos(), 1 - t.cos())
    y = torch.where(up, t.sin(), 0.5 - t.sin())
    return (torch.stack([x - 0.5, y - 0.25], 1) + 0.04 * torch.randn(n, 2)) * 1.5


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)
        for layer in self.mid:
            h = h + layer(nn.functional.silu(h))
        return self.out(nn.functional.silu(h))


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 2)
    for t in reversed(range(STEPS)):
        eps = model(x, torch.full((n,), t))
        x = (x - beta[t] / (1 - alpha_bar[t]).sqrt() * eps) / (1 - beta[t]).sqrt()
        if t:
            x = x + beta[t].sqrt() * torch.randn_like(x)
    return x


model = Denoiser()
ema = {k: v.clone() for k, v in model.state_dict().items()}
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(500):
    x0 = moons(256)
    t = torch.randint(0, STEPS, (256,))
    noise = torch.randn_like(x0)
    ab = alpha_bar[t].unsqueeze(1)
    loss = (model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for k, v in model.state_dict().items():
        ema[k].lerp_(v, 0.02)
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
model.load_state_dict(ema)
print("mean distance of samples to the data", torch.cdist(sample(model, 500), moons(3000)).min(1).values.mean().item())
