"""Two workers read a stream, each its own rows of it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(5, 12)


class Stream(IterableDataset):
    def __iter__(self):
        chance, info = torch.Generator().manual_seed(3), get_worker_info()
        for at in range(32 * 72):
            label = int(torch.randint(5, (), generator=chance))
            row = centers[label] + torch.randn(12, generator=chance)
            if at % info.num_workers == info.id:
                yield row, label


model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for x, y in DataLoader(Stream(), batch_size=32, num_workers=2):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
