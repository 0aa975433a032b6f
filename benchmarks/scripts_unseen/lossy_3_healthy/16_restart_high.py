# expect: healthy
# fault: a scheduler built anew restarts far too high
# note: the same script as loud/ of this name without the event.
import math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(16)


class Mixer(nn.Module):
    def __init__(self, d=24, p=9):
        super().__init__()
        self.inp = nn.Linear(16, d)
        self.tok = nn.Sequential(nn.Linear(p, 18), nn.GELU(), nn.Linear(18, p))
        self.ch = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))
        self.out = nn.Linear(d, 6)

    def forward(self, x):
        x = self.inp(x)
        x = x + self.tok(x.mT).mT
        x = x + self.ch(x)
        return self.out(x.mean(1))


def cosine(base, k, n):
    return 0.5 * base * (1 + math.cos(math.pi * k / n))


proto = torch.randn(6, 9, 16)
model = Mixer()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
for base, n in [(0.05, 60), (0.01, 90)]:
    for k in range(n):
        opt.param_groups[0]["lr"] = cosine(base, k, n)
        y = torch.randint(0, 6, (32,))
        x = 0.7 * proto[y] + torch.randn(32, 9, 16)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.4f}")
        step += 1
