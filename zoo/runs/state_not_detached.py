"""A recurrent net is trained in chunks of one long text, and its state goes into the next chunk with its graph.

Modelled on darts#56 and pytorch's forum ("backward through the graph a second time"): cause reused-graph. Mended: the
state is detached after each chunk.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

SIGNS, ROWS, CHUNK = 11, 8, 12
text = (torch.arange(ROWS)[:, None] + 3 * torch.arange(CHUNK * 60 + 1)) % SIGNS


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.signs = nn.Embedding(SIGNS, 16)
        self.memory = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, SIGNS)

    def forward(self, chunk, state):
        out, state = self.memory(self.signs(chunk), state)
        return self.head(out), state


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
state = torch.zeros(1, ROWS, 32)

for step in range(60):
    chunk = text[:, step * CHUNK : (step + 1) * CHUNK + 1]
    scores, state = model(chunk[:, :-1], state)
    loss = F.cross_entropy(scores.flatten(0, 1), chunk[:, 1:].flatten())
    if FIXED:
        state = state.detach()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
