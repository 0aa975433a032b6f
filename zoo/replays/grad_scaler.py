"""A gradient scaler whose scale grows, overflows and is cut, with float16 in the model; it ends well."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=20)

for step in range(1, 151):
    inputs, targets = torch.randn(16, 8), torch.randint(0, 4, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = nn.functional.cross_entropy(outputs.float(), targets)
    if step in (75, 90):
        loss = loss * 1e30  # an overflow: the scaler skips this update
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
