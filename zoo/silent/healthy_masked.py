"""Healthy: padding is hidden from an encoder, the past is shown to a decoder, and a second stack reads backwards."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH, PAD = 40, 24, 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True)
        self.forwards = nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True)
        self.backwards = nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, ids, mask):
        x = self.encoder(self.table(ids) + self.places(torch.arange(LENGTH)), src_key_padding_mask=~mask)
        square = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
        both = self.forwards(x, src_mask=square.triu(1)), self.backwards(x, src_mask=square.tril(-1))
        return self.head(torch.cat(both, -1).mean(1))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 81):
    ends = torch.randint(8, LENGTH - 2, (16, 1))
    mask = torch.arange(LENGTH) < ends
    ids = torch.randint(1, TOKENS, (16, LENGTH)).masked_fill(~mask, PAD)
    loss = F.cross_entropy(model(ids, mask), ids[:, 1] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
