"""Healthy: a scaler that begins far too high and looks for its scale, and then tries to double it every 50 steps."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=50)

for step in range(1, 501):
    labels = torch.randint(10, (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(centers[labels] + torch.randn(64, 16))
    loss = F.cross_entropy(logits.float(), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
