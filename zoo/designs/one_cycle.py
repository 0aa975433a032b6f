"""Healthy: four micro-batches an update, clipped, and a rate that goes up once and down to next to nothing."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

STEPS, PARTS = 120, 4
centers = torch.randn(10, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=STEPS)

for step in range(1, STEPS + 1):
    model.train()
    for _ in range(PARTS):
        labels = torch.randint(10, (16,))
        loss = F.cross_entropy(model(centers[labels] + torch.randn(16, 32)), labels, label_smoothing=0.1) / PARTS
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step % 30 == 0:
        model.eval()
        with torch.no_grad():
            model(centers)
