# expect: sick
# fault: normalisation of the inputs switched off in mid run
# onset_step: 60
# says: (?i)(loss|gradient|input|data|normal|batch|progress|spike|diverg|scale)
# note: the second part of the data set is loaded by another class that forgets (x - mean) / std.
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

torch.set_num_threads(1)
MEAN, STD = 120.0, 45.0


class Base(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        proto = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        self.y = torch.randint(0, 6, (n,), generator=g)
        self.x = proto[self.y] * 130 + torch.rand(n, 3, 8, 8, generator=g) * 110

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return (self.x[i] - MEAN) / STD, self.y[i]


class Extra(Base):
    def __getitem__(self, i):
        return self.x[i], self.y[i]


torch.manual_seed(8)
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 6))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
data = ConcatDataset([Base(1920, 1), Extra(1920, 2)])
for step, (x, y) in enumerate(DataLoader(data, batch_size=32)):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, loss.item())
