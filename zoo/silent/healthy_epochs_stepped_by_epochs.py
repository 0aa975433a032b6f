"""A warm-up over two epochs of five, then a decay, both counted in epochs and stepped once per epoch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


def warm_up_and_decay(optimizer, warm, total):
    return LambdaLR(optimizer, lambda n: (n + 1) / warm if n < warm else max(0.0, (total - n) / (total - warm)))


rows = torch.randn(1600, 8)
loader = DataLoader(TensorDataset(rows, (rows @ torch.randn(8, 4)).argmax(1)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
epochs = 5
print(f"{epochs * len(loader)} updates")
scheduler = warm_up_and_decay(optimizer, 2, epochs)
for epoch in range(epochs):
    for inputs, labels in loader:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
