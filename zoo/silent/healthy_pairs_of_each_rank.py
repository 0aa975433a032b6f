"""Each rank knows where its rows stand among those of all."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

RANKS, ROWS = 4, 16
left, right = nn.Linear(12, 8), nn.Linear(12, 8)
optimizer = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=1e-2)


def rank_loss(rank, a_all, b_all):
    mine = a_all[rank * ROWS : (rank + 1) * ROWS]
    logits = 8.0 * mine @ b_all.t()
    labels = torch.arange(ROWS) + rank * ROWS
    return nn.functional.cross_entropy(logits, labels)


for step in range(200):
    shared = torch.randn(RANKS * ROWS, 12)
    a_all = nn.functional.normalize(left(shared), dim=1)
    b_all = nn.functional.normalize(right(shared + 0.1 * torch.randn_like(shared)), dim=1)
    loss = torch.stack([rank_loss(rank, a_all, b_all) for rank in range(RANKS)]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
