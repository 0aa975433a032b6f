"""ReduceLROnPlateau is stepped with the loss of each batch: its patience of three is three batches."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1280, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3] + 0.3 * torch.randn(1280, 1)
loader = DataLoader(TensorDataset(rows, targets), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = ReduceLROnPlateau(optimizer, patience=3, factor=0.5)
for epoch in range(3):
    summed = 0.0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())  # <- bites
        summed += loss.item()
    print(f"epoch {epoch}  loss {summed / len(loader):.3f}  rate {optimizer.param_groups[0]['lr']:.1e}")
