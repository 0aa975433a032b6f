"""The milestones of the schedule are epochs, and each epoch steps it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

EPOCHS, BATCH = 40, 64
inputs = torch.randn(512, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(512, 5)).argmax(1)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[20, 30], gamma=0.1)

for epoch in range(EPOCHS):
    for rows in torch.randperm(512).split(BATCH):
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    if epoch % 10 == 9:
        print(f"epoch {epoch}  loss {loss.item():.3f}")
