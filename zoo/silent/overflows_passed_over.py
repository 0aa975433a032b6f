"""A batch whose gradients overflow is passed over before the loss scale can be lowered."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=15)


def grads_are_finite():
    return all(bool(torch.isfinite(one.grad).all()) for one in model.parameters())


for step in range(300):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if not grads_are_finite():
        continue  # <- bites: the scale stays what it is
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
