"""Healthy: prompts and padding have no label; the id that fills rows up also ends each text, and counts there once."""

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
    labels = text.masked_fill((places < 4) | (places > ends), -100)
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), labels[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
