# expect: healthy
# fault: none
# note: shared trunk with two heads (classes and Poisson counts), one optimizer for the trunk and another for the heads.
import torch
from torch import nn

torch.manual_seed(40)
trunk = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
cls, cnt = nn.Linear(64, 4), nn.Linear(64, 1)
o1 = torch.optim.SGD(trunk.parameters(), lr=0.05, momentum=0.9, nesterov=True)
o2 = torch.optim.Adam([*cls.parameters(), *cnt.parameters()], lr=3e-3)
W = torch.randn(14, 4)
for s in range(200):
    x = torch.randn(64, 14)
    y = (x @ W).argmax(1)
    k = torch.poisson((0.6 * x[:, 0]).exp())
    h = trunk(x)
    l1 = nn.functional.cross_entropy(cls(h), y)
    l2 = nn.functional.poisson_nll_loss(cnt(h)[:, 0], k)
    o1.zero_grad()
    o2.zero_grad()
    (l1 + 0.3 * l2).backward()
    o1.step()
    o2.step()
    if s % 20 == 0:
        print(s, f"ce {l1.item():.4f} poisson {l2.item():.4f}")
