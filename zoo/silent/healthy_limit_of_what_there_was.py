"""A clip by hand whose limit is a share of a running average of the norms that there were."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 12)
answers = (rows @ torch.randn(12, 6)).argmax(1)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
usual = None
for step in range(1, 241):
    batch = torch.randint(0, 1024, (16,))
    loss = F.cross_entropy(model(rows[batch]), answers[batch])
    optimizer.zero_grad()
    loss.backward()
    gradients = [one.grad for one in model.parameters()]
    norm = torch.stack([one.norm() for one in gradients]).norm().item()
    scale = min(1.0, 0.8 * usual / norm) if usual is not None else 1.0
    for one in gradients:
        one.mul_(scale)
    usual = norm if usual is None else 0.9 * usual + 0.1 * norm
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
