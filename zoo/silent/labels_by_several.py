"""Each row has any number of labels, and the loss is a softmax cross-entropy, in which only one can win."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(2048, 12)
labels = (rows @ torch.randn(12, 6) > 1.0).float()
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 6))
criterion = nn.CrossEntropyLoss()  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 2048, (64,))
    loss = criterion(model(rows[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
