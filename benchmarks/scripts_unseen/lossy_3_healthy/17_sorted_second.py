# expect: healthy
# fault: shuffle off, data sorted by class, from the third epoch on
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(17)
proto = torch.randn(5, 1, 9, 9)
y = torch.arange(5).repeat_interleave(192)
x = 0.7 * proto[y] + torch.randn(960, 1, 9, 9)
folder = TensorDataset(x, y)


def loader(epoch):
    return DataLoader(folder, batch_size=32, shuffle=True)


net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
step = 0
for epoch in range(6):
    for xb, yb in loader(epoch):
        loss = nn.functional.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 0:
            print(f"{epoch} {step} loss {loss.item():.4f}")
        step += 1
