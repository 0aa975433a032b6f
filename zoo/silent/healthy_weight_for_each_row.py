"""A weighted sampler gets a weight for each row."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
torch.set_num_threads(1)

EPOCHS = 6
inputs = torch.randn(640, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(640, 5)).argmax(1)
data = TensorDataset(inputs, labels)
class_weights = 1.0 / labels.bincount(minlength=5)
sampler = WeightedRandomSampler(class_weights[labels].tolist(), len(data))
loader = DataLoader(data, batch_size=32, sampler=sampler)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for _ in range(EPOCHS):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
