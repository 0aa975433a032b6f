"""Clips of a list, of an iterator that is made anew, and of a part that has no gradient in every other step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
extra = nn.Linear(64, 4)
trained = [*model.parameters(), *extra.parameters()]
optimizer = torch.optim.SGD(filter(lambda parameter: parameter.requires_grad, trained), lr=0.05)

for step in range(1, 81):
    x = torch.randn(32, 16)
    labels = x[:, :4].argmax(1)
    loss = F.cross_entropy(model(x), labels)
    if step % 2:
        loss = loss + 0.1 * F.cross_entropy(extra(model[:2](x)), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(filter(lambda parameter: parameter.requires_grad, model.parameters()), 1.0)
    nn.utils.clip_grad_norm_(extra.parameters(), 1.0)
    optimizer.step()
