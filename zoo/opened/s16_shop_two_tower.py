# expect: sick
# symptom: IndexError: index out of range in self (embedding) at step 20
# axis: data
# cause: item ids run from 1 to N but the table has N rows (0..N-1): off by one
# says: (?i)(off by one|out of range|(id|index).{0,40}(past|beyond|outside|exceed|>=)|table.{0,40}(small|short|rows)|num_embeddings)
# onset_step: 20
# fix: N + 1 rows in the item table
# mended: MENDED=1 python s16_shop_two_tower.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(16)
USERS, ITEMS, GROUPS = 300, 180, 6


class Purchases(Dataset):
    """In order of time: items enter the shop one after the other."""

    def __init__(self, n, batch=64):
        g = torch.Generator().manual_seed(4)
        self.user = torch.randint(0, USERS, (n,), generator=g)
        taste = self.user % GROUPS
        shelf = (60 + torch.arange(n) // 10).clamp(max=ITEMS - 1)
        pick = (torch.rand(n, generator=g) * (shelf // GROUPS)).long()
        self.item = pick * GROUPS + taste + 1
        self.item[19 * batch + 5] = ITEMS
        self.item[: 19 * batch].clamp_(max=ITEMS - 1)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return self.user[i], self.item[i]


class Towers(nn.Module):
    def __init__(self, rows, d=24):
        super().__init__()
        self.u, self.i = nn.Embedding(USERS, d), nn.Embedding(rows, d)

    def forward(self, user, item):
        return self.u(user) @ self.i(item).T / 24**0.5


rows = ITEMS + 1 if os.environ.get("MENDED") == "1" else ITEMS
model = Towers(rows)
opt = torch.optim.Adam(model.parameters(), lr=3e-2)
for step, (user, item) in enumerate(DataLoader(Purchases(64 * 240), batch_size=64), 1):
    score = model(user, item)
    loss = nn.functional.cross_entropy(score, torch.arange(len(user)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
