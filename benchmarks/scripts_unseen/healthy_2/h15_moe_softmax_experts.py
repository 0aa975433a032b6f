# expect: healthy
# fault: none
# note: mixture of experts: softmax over the expert axis (dim=1 of tokens x experts x 1) with a load-balancing loss.
import torch
from torch import nn


class MoE(nn.Module):
    def __init__(self, d=16, h=32, n=4, out=3):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, out)) for _ in range(n))

    def forward(self, x):
        g = self.gate(x)[..., None].softmax(dim=1)
        y = torch.stack([e(x) for e in self.experts], 1)
        imp = g[..., 0].mean(0)
        return (g * y).sum(1), len(self.experts) * (imp * imp).sum()


torch.manual_seed(14)
W = torch.randn(4, 16, 3)
m = MoE()
opt = torch.optim.Adam(m.parameters(), lr=5e-3)
for s in range(220):
    x = torch.randn(96, 16)
    r = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    y = torch.einsum("bd,bdo->bo", x, W[r]).argmax(1)
    out, aux = m(x)
    ce = nn.functional.cross_entropy(out, y)
    loss = ce + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print(f"{s} ce {ce.item():.3f} aux {aux.item():.3f}")
