# expect: sick
# symptom: the training loss falls to nearly nothing but the loss on fresh noise is above 1 and samples are off the ring
# axis: data
# cause: a generator with the same seed is made anew in each step, so the noise and timesteps (and the chosen rows) are the same in every step
# says: seed|generator|same (noise|random|draw|numbers)|manual_seed|identical (noise|draw|random)|never (changes|varies)
# onset_step: 0
# fix: make the generator once before the loop
# mended: the generator is made once
import os
import math
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEED, STEPS, T, B = 123, 400, 50, 128
torch.manual_seed(SEED)

beta = torch.linspace(1e-3, 0.12, T)
alpha_bar = torch.cumprod(1 - beta, 0)


def ring(n):
    a = torch.rand(n) * 2 * math.pi
    return torch.stack([a.cos(), a.sin()], 1) + 0.03 * torch.randn(n, 2)


class Denoiser(nn.Module):
    def __init__(self, h=96):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(
            nn.Linear(18, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 2)
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


def diffusion_loss(model, x0, generator):
    t = torch.randint(0, T, (len(x0),), generator=generator)
    eps = torch.randn(x0.shape, generator=generator)
    ab = alpha_bar[t].unsqueeze(1)
    return (model(ab.sqrt() * x0 + (1 - ab).sqrt() * eps, t) - eps).pow(2).mean()


@torch.no_grad()
def draw(model, n):
    x = torch.randn(n, 2)
    for k in reversed(range(T)):
        e = model(x, torch.full((n,), k))
        x = (x - beta[k] / (1 - alpha_bar[k]).sqrt() * e) / (1 - beta[k]).sqrt()
        if k:
            x += beta[k].sqrt() * torch.randn(n, 2)
    return x


data = ring(5000)
model = Denoiser()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
gen = torch.Generator().manual_seed(SEED)
for step in range(STEPS):
    if not MENDED:
        gen = torch.Generator().manual_seed(SEED)
    rows = torch.randint(0, len(data), (B,), generator=gen)
    loss = diffusion_loss(model, data[rows], gen)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step} loss {loss.item():.4f}")

with torch.no_grad():
    fresh = torch.stack([diffusion_loss(model, ring(512), None) for _ in range(5)]).mean()
radius = draw(model, 400).norm(dim=1)
print(f"fresh loss {fresh:.4f}; radius of samples {radius.mean():.2f} +- {radius.std():.2f}")
