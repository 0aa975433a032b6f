# expect: sick
# cause: StepLR with a step size meant in epochs is stepped after each batch, so the learning rate has shrunk to nothing before the first epoch is over.
import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(11)
torch.manual_seed(11)


def leaf(kind):
    yy, xx = np.mgrid[-1:1:20j, -1:1:20j]
    a = rng.uniform(0, 2 * np.pi)
    u, v = xx * np.cos(a) - yy * np.sin(a), xx * np.sin(a) + yy * np.cos(a)
    r, phi = np.hypot(u, v), np.arctan2(v, u)
    s = rng.uniform(0.5, 0.75)
    if kind == 0:
        m = r < s
    elif kind == 1:
        m = r < s * (0.65 + 0.35 * np.cos(3 * phi))
    elif kind == 2:
        m = r < s * (0.65 + 0.35 * np.cos(5 * phi))
    elif kind == 3:
        m = (u / s) ** 2 + (v / (0.4 * s)) ** 2 < 1
    else:
        m = np.maximum(abs(u), abs(v)) < 0.75 * s
    return m + 0.25 * rng.standard_normal((20, 20))


def build(n):
    y = rng.integers(0, 5, n)
    x = np.stack([leaf(k) for k in y]).astype("float32")[:, None]
    return TensorDataset(torch.from_numpy((x - 0.25) / 0.5), torch.from_numpy(y))


train_loader = DataLoader(build(1600), batch_size=64, shuffle=True)
test_loader = DataLoader(build(500), batch_size=250)

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 5),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = StepLR(optimizer, step_size=5, gamma=0.2)

for epoch in range(12):
    net.train()
    running = 0.0
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item()
    net.eval()
    with torch.no_grad():
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in test_loader)
    print(f"epoch {epoch + 1:2d}  train loss {running / len(train_loader):.4f}  test accuracy {hits / 500:.3f}")
