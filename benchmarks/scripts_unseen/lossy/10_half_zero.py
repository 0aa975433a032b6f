# EXPECT: sick
# FAULT: half of every batch is zeroed
# ONSET: 101
# SAYS: input|zero|batch|data
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(210)

conv = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 24, 3, stride=2),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(24 * 4, 5),
)
opt = torch.optim.SGD(conv.parameters(), lr=0.02, momentum=0.9)
proto = torch.randn(5, 3, 12, 12)


def collate(step, n=32):
    y = torch.randint(0, 5, (n,))
    x = proto[y] + 2.5 * torch.randn(n, 3, 12, 12)
    buf = torch.zeros_like(x)
    filled = n if step < 100 else n // 2
    buf[:filled] = x[:filled]
    return buf, y


for step in range(150):
    x, y = collate(step)
    loss = nn.functional.cross_entropy(conv(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("it", step, "loss", round(loss.item(), 4))
