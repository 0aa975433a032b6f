"""A log of clicks is sorted by product and read without shuffling: most negatives of a batch are positives."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

PRODUCTS, CLICKS, WORDS = 400, 12, 400
titles = torch.randint(16, WORDS, (PRODUCTS, 6))


def query(product):
    """Some words of the title, and one that has nothing to do with it."""
    words = titles[product][torch.randperm(6)[:3]]
    return torch.cat([words, torch.randint(16, WORDS, (1,))])


products = torch.arange(PRODUCTS).repeat_interleave(CLICKS)
queries = torch.stack([query(int(one)) for one in products])
order = torch.arange(len(products))  # <- bites
words, asked, given = nn.Embedding(WORDS, 48), nn.Linear(48, 32), nn.Linear(48, 32)
optimizer = torch.optim.Adam(nn.ModuleList([words, asked, given]).parameters(), lr=5e-3)

for step in range(1, 151):
    rows = order[(step - 1) * 32 % len(order) :][:32]
    left = F.normalize(asked(words(queries[rows]).mean(1)), dim=1)
    right = F.normalize(given(words(titles[products[rows]]).mean(1)), dim=1)
    loss = F.cross_entropy(left @ right.T / 0.1, torch.arange(len(rows)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
