# Small CNN, SGD with momentum. Fault: the batch of step 330 is x1e4 (raw counts instead of reflectances).
import argparse

import torch
from torch import nn

a = argparse.ArgumentParser()
a.add_argument("--seed", type=int, default=0)
a.add_argument("--twin", action="store_true")
a = a.parse_args()

rng = torch.Generator().manual_seed(21)
prototypes = torch.randn(8, 1, 12, 12, generator=rng)


def images(n):
    y = torch.randint(0, 8, (n,), generator=rng)
    return prototypes[y] + 2.2 * torch.randn(n, 1, 12, 12, generator=rng), y


tx, ty = images(4000)
vx, vy = images(1500)
torch.manual_seed(a.seed)
cnn = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(12, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(144, 8),
)
opt = torch.optim.SGD(cnn.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [300, 400], gamma=0.3)
crit = nn.CrossEntropyLoss()
for step in range(480):
    pick = torch.randint(0, len(tx), (40,))
    x, y = tx[pick], ty[pick]
    if step == 330 and not a.twin:
        x = x * 1e4
    opt.zero_grad()
    loss = crit(cnn(x), y)
    loss.backward()
    opt.step()
    sched.step()
    if (step + 1) % 40 == 0:
        print(f"[{step + 1:4d}] {loss.item():.3f}")
cnn.eval()
with torch.no_grad():
    print("final:", crit(cnn(vx), vy).item())
