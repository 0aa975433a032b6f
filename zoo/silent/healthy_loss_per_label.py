"""Healthy: the loss of each label is kept apart, and those of prompts and padding are masked before the mean."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH, END = 40, 24, 0


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, TOKENS)

    def forward(self, ids):
        length = ids.shape[1]
        closed = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.layers(self.table(ids) + self.places(torch.arange(length)), closed, is_causal=True))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
places = torch.arange(LENGTH)

for step in range(1, 81):
    text = 1 + (torch.randint(TOKENS, (16, 1)) + places * torch.randint(1, 4, (16, 1))) % (TOKENS - 1)
    ends = torch.randint(10, LENGTH, (16, 1))
    text = torch.where(places < ends, text, END)
    counts = (places >= 4) & (places <= ends)
    scores = model(text[:, :-1])
    each = F.cross_entropy(scores.transpose(1, 2), text[:, 1:], reduction="none")
    loss = (each * counts[:, 1:]).sum() / counts[:, 1:].sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
