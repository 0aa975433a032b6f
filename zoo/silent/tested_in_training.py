"""The test after the last epoch runs in training mode, and with gradients."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

x, rule = torch.randn(768, 16), torch.randn(16, 4)
y = (x @ rule).argmax(1)
train_loader = DataLoader(TensorDataset(x[:512], y[:512]), 32, shuffle=True)
test_loader = DataLoader(TensorDataset(x[512:], y[512:]), 64)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(1, 9):
    for inputs, labels in train_loader:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")

right = 0
for inputs, labels in test_loader:  # <- bites
    right += (model(inputs).argmax(1) == labels).sum().item()
print(f"right {right / 256:.0%}")
