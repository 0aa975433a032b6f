"""A table of users, items and ratings is kept in float16, which rounds the ids above 2,048 to their neighbours."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

USERS, ITEMS = 6001, 3001
tastes, qualities = torch.randn(USERS, 4), torch.randn(ITEMS, 4)
users, items = torch.randint(USERS, (40_000,)), torch.randint(ITEMS, (40_000,))
ratings = (tastes[users] * qualities[items]).sum(1).clamp(-3, 3)
table = torch.stack([users.float(), items.float(), ratings], 1).half()  # <- bites

user_rows, item_rows = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)
model = nn.ModuleList([user_rows, item_rows])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

for step in range(1, 201):
    rows = table[torch.randint(len(table), (512,))]
    guess = (user_rows(rows[:, 0].long()) * item_rows(rows[:, 1].long())).sum(1)
    loss = (guess - rows[:, 2].float()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
