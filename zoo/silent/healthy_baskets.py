"""A multinomial likelihood of whole baskets, each with any number of items, and a classifier with mixed labels."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

tastes = torch.randn(2048, 4) @ torch.randn(4, 40)
baskets = (tastes + torch.randn(2048, 40) > 2.0).float()
kinds = tastes[:, :6].argmax(1)
body = nn.Sequential(nn.Linear(40, 32), nn.Tanh(), nn.Linear(32, 46))
optimizer = torch.optim.Adam(body.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 2048, (64,))
    items, scores = body(baskets[batch]).split((40, 6), dim=1)
    loss = -(items.log_softmax(1) * baskets[batch]).sum(1).mean()
    one_hot = nn.functional.one_hot(kinds[batch], 6).float()
    mixed = 0.7 * one_hot + 0.3 * one_hot.roll(1, 0)
    loss = loss + nn.functional.cross_entropy(scores, mixed)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
