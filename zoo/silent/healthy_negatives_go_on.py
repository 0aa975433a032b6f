"""The function that puts batches together draws the items nobody bought from a generator that goes on: healthy."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)

USERS, ITEMS, TASTES = 120, 300, 10
users = torch.arange(USERS).repeat_interleave(20)
items = torch.randint(0, ITEMS // TASTES, (len(users),)) * TASTES + users % TASTES


class WithNegatives:
    def __init__(self, seed):
        self.draw = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        pairs = torch.tensor(rows)
        return pairs[:, 0], pairs[:, 1], torch.randint(0, ITEMS, (len(pairs),), generator=self.draw)


loader = DataLoader(list(zip(users.tolist(), items.tolist(), strict=True)), 64, True, collate_fn=WithNegatives(5))
user, item = nn.Embedding(USERS, 16), nn.Embedding(ITEMS, 16)
optimizer = torch.optim.Adam([*user.parameters(), *item.parameters()], lr=2e-2)

step = 0
for _ in range(4):
    for who, bought, other in loader:
        of = user(who)
        loss = -F.logsigmoid((of * item(bought)).sum(1) - (of * item(other)).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 40 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
