# expect: healthy
# fault: none
# note: OneCycleLR stepped per batch with total_steps equal to the run.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
P = torch.randn(8, 3, 8, 8)
y = torch.randint(0, 8, (2560,))
dl = DataLoader(TensorDataset(P[y] + 1.2 * torch.randn(2560, 3, 8, 8), y), 64, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(24, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 8),
)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
E = 4
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, epochs=E, steps_per_epoch=len(dl))
for e in range(E):
    for x, t in dl:
        loss = nn.functional.cross_entropy(net(x), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sch.step()
    print(e, round(loss.item(), 4), sch.get_last_lr())
