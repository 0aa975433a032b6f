"""Healthy: statistics of batch norm are made anew after the last epoch, then a test, and ten samples of dropout."""

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
dropout = nn.Dropout(0.5)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), dropout, nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(1, 9):
    for inputs, labels in train_loader:
        loss = F.cross_entropy(model(inputs + 0.1 * torch.randn_like(inputs)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")

for inputs, _ in train_loader:
    model(inputs)
model.eval()
right = 0
with torch.no_grad():
    for inputs, labels in test_loader:
        right += (model(inputs).argmax(1) == labels).sum().item()
    print(f"right {right / 256:.0%}")
    model.train()
    samples = torch.stack([model(x[512:]).softmax(1) for _ in range(10)])
print(f"spread of ten samples {samples.std(0).mean():.3f}")
