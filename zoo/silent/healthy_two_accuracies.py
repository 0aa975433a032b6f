"""Healthy: the accuracy in training beside that of a validation set."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
torch.set_num_threads(1)

x, rule = torch.randn(640, 16), torch.randn(16, 4)
train_set, val_set = random_split(TensorDataset(x, (x @ rule).argmax(1)), [512, 128])
train_loader = DataLoader(train_set, 32, shuffle=True)
val_loader = DataLoader(val_set, 32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


@torch.no_grad()
def accuracy(loader):
    model.eval()
    right = [(model(inputs).argmax(1) == labels).float().mean() for inputs, labels in loader]
    model.train()
    return torch.stack(right).mean().item()


for epoch in range(1, 9):
    for inputs, labels in train_loader:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}  right {accuracy(train_loader):.0%} and {accuracy(val_loader):.0%}")
