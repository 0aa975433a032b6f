# expect: sick
# fault: BatchNorm momentum 0, running statistics never move
# onset_step: 0
# says: (?i)(batch.?norm|running|statistic|momentum|eval|validation)
# note: momentum=0 (meant as TensorFlow's convention of 1) leaves running_mean 0 and running_var 1, so evaluation is bad while training is good.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
y = torch.randint(0, 6, (1500,))
tmpl = torch.randn(6, 3, 10, 10)
x = tmpl[y] * 4 + 6 * torch.randn(1500, 3, 10, 10) + 9.0
tr, va = random_split(TensorDataset(x, y), [1200, 300])
trl, val = DataLoader(tr, 60, shuffle=True), DataLoader(va, 100)


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o, momentum=0.0), nn.ReLU(inplace=True)
    )


net = nn.Sequential(
    conv(3, 16), conv(16, 32), nn.MaxPool2d(2), conv(32, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 6)
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(6):
    net.train()
    for xb, yb in trl:
        loss = F.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        vl = sum(F.cross_entropy(net(a), b).item() for a, b in val) / len(val)
        acc = sum((net(a).argmax(1) == b).sum().item() for a, b in val) / len(va)
    print(f"epoch {epoch} train {loss.item():.3f} val {vl:.3f} acc {acc:.3f}")
