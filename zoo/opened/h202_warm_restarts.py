# expect: healthy
# symptom: resembles a restart that is too high: at steps 100 and 200 the rate leaps from 0 to its peak and the loss may rise for some steps
# note: cosine with warm restarts as published; the loss at the end of each cycle is below that of the one before
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(232)
gen = torch.Generator().manual_seed(32)
proto = torch.randn(10, 3, 8, 8, generator=gen)


def draw(n):
    y = torch.randint(0, 10, (n,), generator=gen)
    return proto[y] + 2.5 * torch.randn(n, 3, 8, 8, generator=gen), y


net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.GroupNorm(4, 24),
    nn.ReLU(),
    nn.Conv2d(24, 24, 3, stride=2, padding=1),
    nn.GroupNorm(4, 24),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(384, 10),
)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=1, eta_min=1e-4)
vx, vy = draw(512)
for step in range(1, 301):
    x, y = draw(32)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 20 == 0:
        with torch.no_grad():
            held = F.cross_entropy(net(vx), vy)
        print(f"step {step} loss {loss.item():.4f} held-out {held.item():.4f} rate {sched.get_last_lr()[0]:.4f}")
