# expect: healthy
# fault: none
# note: the loss stays near log 7 during a long warm-up and then falls.
import math
import torch
from torch import nn


class M(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.e = nn.Embedding(7, d)
        self.f = nn.Sequential(nn.Linear(2 * d, 128), nn.ReLU(), nn.Linear(128, 7))
        nn.init.zeros_(self.f[-1].weight)
        nn.init.zeros_(self.f[-1].bias)

    def forward(self, a, b):
        return self.f(torch.cat([self.e(a), self.e(b)], -1))


torch.manual_seed(12)
net = M()
opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, ((s + 1) / 80) ** 2))
print("guess", math.log(7))
for s in range(260):
    a, b = torch.randint(0, 7, (2, 64))
    loss = nn.functional.cross_entropy(net(a, b), (a + b) % 7)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sch.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
