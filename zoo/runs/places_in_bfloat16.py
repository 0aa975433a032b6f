"""The table of positions was made in bfloat16, where 256 and 257 are one number: late places cannot be told apart.

The task is to write a line again, 2 places later, where only places can help. Modelled on gpt-neox#1003 ("256 == 257")
and transformers PR29285: cause low-precision-positions. Mended: the table is made in float32.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
FIRST, LENGTH, WIDTH, TOKENS = 512, 24, 32, 16
torch.manual_seed(0)
torch.set_num_threads(1)


class Copier(nn.Module):
    def __init__(self):
        super().__init__()
        places = torch.arange(FIRST + LENGTH, dtype=torch.float32 if FIXED else torch.bfloat16)
        rates = torch.exp(-math.log(1000) * torch.arange(WIDTH // 2) / (WIDTH // 2))
        angles = places.float()[:, None] * rates
        self.register_buffer("position_table", torch.cat([angles.sin(), angles.cos()], 1))
        self.tokens, self.out = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.query, self.key = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, ids):
        where = self.position_table[FIRST:]
        scores = self.query(where) @ self.key(where).T
        future = torch.ones(LENGTH, LENGTH).triu(1).bool()
        mixed = (scores / math.sqrt(WIDTH)).masked_fill(future, -math.inf).softmax(-1) @ self.tokens(ids)
        return self.out(mixed)


model = Copier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(1, 401):
    ids = torch.randint(TOKENS, (32, LENGTH))
    loss = F.cross_entropy(model(ids)[:, 2:].flatten(0, 1), ids[:, :-2].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
