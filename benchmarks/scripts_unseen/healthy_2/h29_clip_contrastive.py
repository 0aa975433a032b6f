# expect: healthy
# fault: none
# note: in-batch contrastive learning whose labels are arange(batch), the loss taken over both axes on purpose.
import torch
import torch.nn.functional as F
from torch import nn


class Dual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
        self.b = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 16))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, u, v):
        z = F.normalize(self.a(u), dim=-1) @ F.normalize(self.b(v), dim=-1).T * self.logit_scale.exp()
        y = torch.arange(len(u))
        return (F.cross_entropy(z, y) + F.cross_entropy(z.T, y)) / 2


torch.manual_seed(29)
A, B = torch.randn(8, 24), torch.randn(8, 18)
m = Dual()
opt = torch.optim.AdamW(m.parameters(), lr=3e-3, weight_decay=0.01)
for s in range(200):
    z = torch.randn(48, 8)
    loss = m(z @ A + 0.1 * torch.randn(48, 24), z @ B + 0.1 * torch.randn(48, 18))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
