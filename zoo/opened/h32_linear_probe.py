# expect: healthy
# symptom: most parameters never change and have no gradient, as if they had been forgotten in the optimizer (a frozen backbone with a linear probe)
# axis: optimizer
# cause: none
import torch
from torch import nn

torch.manual_seed(3)


def images(n):
    y = torch.randint(4, (n,))
    x = torch.randn(n, 1, 14, 14) * 0.5
    for k in range(4):
        r, c = (k // 2) * 7, (k % 2) * 7
        x[y == k, :, r : r + 7, c : c + 7] += 0.8
    return x, y


features = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(24, 48, 3, padding=1),
    nn.BatchNorm2d(48),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
)
features.requires_grad_(False)
features.eval()
probe = nn.Linear(192, 4)
opt = torch.optim.SGD(probe.parameters(), lr=0.5, momentum=0.9)
x, y = images(1500)
vx, vy = images(400)
step = 0
for epoch in range(10):
    for b in torch.randperm(1500).split(50):
        with torch.no_grad():
            f = features(x[b])
        loss = nn.functional.cross_entropy(probe(f), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    acc = (probe(features(vx)).argmax(1) == vy).float().mean().item()
    print(f"epoch {epoch} step {step} loss {loss.item():.4f} accuracy {acc:.3f}")
