"""The inverse of the counts weights the classes, and negatives over positives the rare event."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(4096, 8)
answers = (rows @ torch.randn(8, 4) + torch.tensor([4.0, 2.0, 0.0, -1.0])).argmax(1)
events = (rows @ torch.randn(8, 1) > 4.0).float()
counts = torch.bincount(answers, minlength=4)
criterion = nn.CrossEntropyLoss(weight=counts.sum() / (4 * counts))
event = nn.BCEWithLogitsLoss(pos_weight=(1 - events).sum() / events.sum())
model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 4096, (64,))
    scores = model(rows[batch])
    loss = criterion(scores[:, :4], answers[batch]) + event(scores[:, 4:], events[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
