# expect: healthy
# fault: none
# note: a tight clip (1e-3 norm) under Adam only rescales the gradient, to which Adam is all but invariant.
import torch
from torch import nn

torch.manual_seed(21)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
W = torch.randn(16, 4)
for s in range(200):
    x = torch.randn(64, 16)
    loss = nn.functional.cross_entropy(net(x), (x @ W).argmax(1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
