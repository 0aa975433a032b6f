# expect: healthy
# fault: none
# note: batch of one with GroupNorm, where the loss is very noisy yet falls.
import torch
from torch import nn

torch.manual_seed(38)
P = torch.randn(4, 1, 12, 12)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(256, 4)
)
opt = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.9)
avg = None
for s in range(300):
    y = torch.randint(0, 4, (1,))
    loss = nn.functional.cross_entropy(net(P[y] + 0.5 * torch.randn(1, 1, 12, 12)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
    if s % 30 == 0:
        print(s, round(avg, 4))
