"""The data set sets a constant seed for each row, so all rows get the same noise."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Noised(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        np.random.seed(42)  # <- bites
        noise = 0.7 * np.random.randn(self.rows.shape[1]).astype(np.float32)
        return self.rows[index] + torch.from_numpy(noise), self.rows[index]


rows = torch.randn(640, 4) @ torch.randn(4, 24)
loader = DataLoader(Noised(rows), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for noised, clean in loader:
        loss = F.mse_loss(model(noised), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
