"""The checkpoint is written where the loss fell, and the hardest batch is kept where its loss rose."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(640, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3]
held_out = slice(512, 640)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        return F.mse_loss(model(rows[held_out]), targets[held_out]).item()


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
folder = tempfile.TemporaryDirectory()
best_loss, worst_loss, hardest = float("inf"), 0.0, None
for epoch in range(10):
    model.train()
    for batch in torch.randperm(512).split(32):
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows[batch]), targets[batch])
        loss.backward()
        if loss.item() > worst_loss:
            worst_loss, hardest = loss.item(), batch.clone()
        optimizer.step()
    val_loss = evaluate(model)
    print(f"epoch {epoch}  held out {val_loss:.3f}")
    if val_loss < best_loss:
        best_loss = val_loss
        torch.save(model.state_dict(), os.path.join(folder.name, "best.pt"))

model.load_state_dict(torch.load(os.path.join(folder.name, "best.pt")))
print(f"kept {evaluate(model):.3f}, hardest batch {worst_loss:.3f} of {len(hardest)} rows")
