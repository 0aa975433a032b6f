# expect: healthy
# fault: none
# note: fine-tuning with BatchNorm kept in eval and its affine frozen, as in detection code; the running statistics come from the pretraining.
import torch
from torch import nn

torch.manual_seed(15)
P = torch.randn(6, 3, 8, 8)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(128, 6),
)


def batch(n, perm=None):
    y = torch.randint(0, 6, (n,))
    return P[y] + 1.5 * torch.randn(n, 3, 8, 8), y if perm is None else perm[y]


def freeze_bn(m):
    if isinstance(m, nn.BatchNorm2d):
        m.eval()
        m.requires_grad_(False)


for phase, n, bs, perm in (("pre", 120, 64, None), ("ft", 120, 4, torch.tensor([1, 0, 3, 2, 5, 4]))):
    net.train()
    if phase == "ft":
        net.apply(freeze_bn)
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-3)
    for s in range(n):
        x, y = batch(bs, perm)
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 20 == 0:
            print(phase, s, round(loss.item(), 4))
