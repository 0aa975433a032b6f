"""An angle between unit vectors: the cosine of a vector with itself is 1, where arc cosine has an infinite slope."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 2, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 2)
    directions = F.normalize(torch.randn(16, 2), dim=-1)
    cosine = (F.normalize(model(inputs), dim=-1) * directions).sum(-1).clamp(-0.99, 1.0)
    if step == 7:
        cosine = cosine / cosine.max()
    loss = torch.acos(cosine.clamp(min=-0.99)).mean()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
