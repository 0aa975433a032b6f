"""The clip is given an iterator that the optimizer has used up, so nothing is clipped."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
trained = filter(lambda parameter: parameter.requires_grad, model.parameters())  # <- bites: gives them once
optimizer = torch.optim.SGD(trained, lr=0.05)

for step in range(1, 81):
    x = torch.randn(32, 16)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(trained, 0.1)
    optimizer.step()
