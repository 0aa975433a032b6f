"""Each of two workers reads the whole stream, so every batch comes twice."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(5, 12)


class Stream(IterableDataset):
    def __iter__(self):
        chance = torch.Generator().manual_seed(3)
        for _ in range(32 * 36):  # <- bites: the same rows in every worker
            label = int(torch.randint(5, (), generator=chance))
            yield centers[label] + torch.randn(12, generator=chance), label


model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for x, y in DataLoader(Stream(), batch_size=32, num_workers=2):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
