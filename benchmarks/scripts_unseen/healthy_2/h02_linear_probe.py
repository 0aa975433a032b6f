# expect: healthy
# fault: none
# note: linear probe: a frozen, pretrained encoder under no_grad with only the probe in the optimizer.
import torch
from torch import nn

torch.manual_seed(1)
basis = torch.randn(5, 30)
enc = nn.Sequential(nn.Linear(30, 32), nn.Tanh(), nn.Linear(32, 5))
dec = nn.Linear(5, 30)
pre = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=5e-3)
for i in range(150):
    z = torch.randn(64, 5)
    x = z @ basis
    l = (dec(enc(x)) - x).pow(2).mean()
    pre.zero_grad()
    l.backward()
    pre.step()
    if i % 30 == 0:
        print("pretrain", i, round(l.item(), 3))

enc.eval().requires_grad_(False)
probe = nn.Linear(5, 5)
opt = torch.optim.Adam(probe.parameters(), lr=2e-2)
for i in range(120):
    z = torch.randn(64, 5)
    y = z.argmax(1)
    with torch.no_grad():
        f = enc(z @ basis)
    l = nn.functional.cross_entropy(probe(f), y)
    opt.zero_grad()
    l.backward()
    opt.step()
    if i % 20 == 0:
        print("probe", i, round(l.item(), 3))
