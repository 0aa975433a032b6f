"""Files of one class each, read one after the other through a shuffle buffer that is far smaller than a file."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)
torch.set_num_threads(1)

CLASSES, FILE_ROWS, BUFFER = 5, 320, 32
centres = torch.randn(CLASSES, 12)


class Files(IterableDataset):
    def rows(self):
        for label in range(CLASSES):
            for row in centres[label] + torch.randn(FILE_ROWS, 12):
                yield row, label

    def __iter__(self):
        chance, buffer = random.Random(0), []
        for row in self.rows():
            if len(buffer) < BUFFER:  # <- bites: a file has ten times as many rows
                buffer.append(row)
                continue
            at = chance.randrange(BUFFER)
            yield buffer[at]
            buffer[at] = row
        yield from buffer


model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(4):
    for x, y in DataLoader(Files(), batch_size=32):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
