"""The loss takes logits, and the accuracy compares them with 0.5 as if they were probabilities."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(768, 16)
labels = (torch.sigmoid(2 * rows[:, 0] + rows[:, 1]) > torch.rand(768)).float()
train, held_out = slice(0, 512), slice(512, 768)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        output = model(rows[held_out]).squeeze(1)
        predicted = (output > 0.5).float()  # <- bites
        found = (predicted * labels[held_out]).sum() / labels[held_out].sum()
        return criterion(output, labels[held_out]).item(), found.item()


for epoch in range(10):
    model.train()
    for batch in torch.randperm(512).split(32):
        loss = criterion(model(rows[train][batch]).squeeze(1), labels[train][batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    held, recall = evaluate(model)
    print(f"epoch {epoch}  held out {held:.3f}  recall {recall:.3f}")
