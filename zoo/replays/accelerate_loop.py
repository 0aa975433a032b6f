"""Accelerate, which fetches one batch ahead, with accumulation and clipping."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
data = TensorDataset(torch.randn(320, 8), torch.randint(0, 4, (320,)))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=4, shuffle=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 120)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

calls = 0
for epoch in range(3):
    for inputs, targets in loader:
        calls += 1
        with accelerator.accumulate(model):
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, targets)
            if calls == 2 * 90:
                loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
