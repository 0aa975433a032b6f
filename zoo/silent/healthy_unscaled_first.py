"""Healthy: a gradient scaler, micro-batches that are averaged, and clipping after the gradients were unscaled."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

PARTS = 4
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

for step in range(1, 81):
    model.train()
    for _ in range(PARTS):
        x = torch.randn(16, 16)
        loss = F.mse_loss(model(x), x[:, :1] + 0.1 * torch.randn(16, 1)) / PARTS
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            model(torch.randn(16, 16))
