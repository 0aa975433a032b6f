"""The best model is a second name of the model, so the one that is saved and tested is the last one."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(640, 16)
labels = (rows[:, :2].sum(1) + 0.3 * torch.randn(640) > 0).long()
fit, held_out = slice(0, 512), slice(512, 640)


def accuracy(model):
    model.eval()
    with torch.no_grad():
        return (model(rows[held_out]).argmax(1) == labels[held_out]).float().mean().item()


def train_epoch(model, optimizer):
    model.train()
    for batch in torch.randperm(512).split(32):
        optimizer.zero_grad()
        F.cross_entropy(model(rows[fit][batch]), labels[fit][batch]).backward()
        optimizer.step()


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
best, best_model = 0.0, None
for epoch in range(10):
    train_epoch(model, optimizer)
    score = accuracy(model)
    print(f"epoch {epoch}  accuracy {score:.3f}")
    if score > best:
        best, best_model = score, model  # <- bites

with tempfile.TemporaryDirectory() as folder:
    torch.save(best_model.state_dict(), os.path.join(folder, "best.pt"))
print(f"best {best:.3f}, tested {accuracy(best_model):.3f}")
