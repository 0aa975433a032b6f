"""A clip limit of 0.001 where 1 is meant: nothing is left of the gradients of SGD."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 12)
answers = (rows @ torch.randn(12, 6)).argmax(1)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    loss = F.cross_entropy(model(rows[batch]), answers[batch])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.001)  # <- bites
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
