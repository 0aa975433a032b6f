"""A shuffling data loader with two workers, over several epochs."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    """Augments in the worker, with each of the three generators."""

    def __init__(self):
        self.inputs = torch.randn(320, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        noise = torch.randn(8) * 0.1 + np.random.rand() * 0.1 + random.random() * 0.1
        return {"inputs": self.inputs[index] + noise, "targets": index % 4}


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2)
    step = 0
    for epoch in range(4):
        for batch in loader:
            step += 1
            outputs = model(batch["inputs"])
            loss = nn.functional.cross_entropy(outputs, batch["targets"])
            if step == 150:
                loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
