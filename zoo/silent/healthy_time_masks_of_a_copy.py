"""The cached series are masked in a copy; the first read of each fills the cache, and reads are counted beside it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class TimeMask:
    def __init__(self, width):
        self.width = width

    def apply(self, series):
        begin = int(torch.randint(0, len(series) - self.width, (1,)))
        window = series[begin : begin + self.width]
        window.zero_()
        return series


class Series(Dataset):
    def __init__(self, count, transform):
        self.rates = torch.rand(count) * 3 + 1
        self.drawn = torch.sin(self.rates[:, None] * torch.linspace(0, 6, 48)) + 0.1 * torch.randn(count, 48)
        self.cache = torch.zeros(count, 48)
        self.reads = torch.zeros(count, 16)
        self.transform = transform

    def __len__(self):
        return len(self.cache)

    def filled(self, i):
        self.reads[i, 0] += 1
        if self.reads[i, 0] == 1:
            self.cache[i] = self.drawn[i]
        return self.cache[i].clone()

    def __getitem__(self, i):
        return self.transform.apply(self.filled(i)), self.rates[i]


loader = DataLoader(Series(256, TimeMask(6)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(16):
    for x, y in loader:
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch}  loss {loss.item():.3f}")
