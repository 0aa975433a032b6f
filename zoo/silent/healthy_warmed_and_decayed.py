"""A warm-up over three epochs, then a cosine to zero that ends with the run, both stepped after each batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

EPOCHS = 10
inputs = torch.randn(256, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(256, 5)).argmax(1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
warm, rest = 3 * len(loader), (EPOCHS - 3) * len(loader)
scheduler = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=warm),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=rest),
    ],
    milestones=[warm],
)

for _ in range(EPOCHS):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
