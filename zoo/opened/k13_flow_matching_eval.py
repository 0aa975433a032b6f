# expect: healthy
# symptom: generators with a fixed seed are made again and again in the loop
# axis: none
# mended: none
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SEED = 2024
torch.manual_seed(SEED)


def two_moons(n):
    u = torch.rand(n) * torch.pi
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, u.cos(), 1 - u.cos())
    y = torch.where(upper, u.sin(), 0.5 - u.sin())
    return torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)


class Velocity(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.f(torch.cat([x, t], -1))


def fm_loss(model, x1, generator=None):
    x0 = torch.randn(x1.shape, generator=generator)
    t = torch.rand(len(x1), 1, generator=generator)
    return ((model((1 - t) * x0 + t * x1, t) - (x1 - x0)) ** 2).mean()


@torch.no_grad()
def validation_loss(model, x):
    # the same noise and times for each checkpoint, so that checkpoints compare
    g = torch.Generator().manual_seed(SEED)
    return sum(fm_loss(model, x, g).item() for _ in range(4)) / 4


train, val = two_moons(3200), two_moons(600)
model = Velocity()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
step = 0
for epoch in range(6):
    # the order of the rows can be rebuilt from (seed, epoch) after a restart
    order = torch.Generator().manual_seed(SEED + epoch)
    for (x,) in DataLoader(TensorDataset(train), batch_size=64, shuffle=True, generator=order):
        loss = fm_loss(model, x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} val {validation_loss(model, val):.4f}")
