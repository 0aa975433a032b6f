# expect: healthy
# fault: none
# note: constant rate with label smoothing, so the loss has a floor well over zero.
import torch
from torch import nn

torch.manual_seed(11)
C = torch.randn(10, 24)
net = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 10))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
crit = nn.CrossEntropyLoss(label_smoothing=0.2)
for s in range(250):
    y = torch.randint(0, 10, (64,))
    loss = crit(net(C[y] + 0.5 * torch.randn(64, 24)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 25 == 0:
        print("step", s, "loss", round(loss.item(), 4))
