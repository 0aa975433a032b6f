"""The state of rows that begin another series is cleared in a copy."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

ROWS = 32
cell = nn.GRUCell(4, 24)
head = nn.Linear(24, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=3e-3)
state, total = torch.zeros(ROWS, 24), torch.zeros(ROWS)
for step in range(200):
    begins = torch.rand(ROWS) < 0.2  # these rows begin another series
    total = torch.where(begins, torch.zeros(ROWS), total)
    state[begins].zero_()  # <- bites: a mask makes a copy
    moves = torch.randn(ROWS, 4)
    total = 0.7 * total + moves.sum(1) / 2
    state = cell(moves, state.detach())
    loss = nn.functional.mse_loss(head(state).squeeze(1), total)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state.detach()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
