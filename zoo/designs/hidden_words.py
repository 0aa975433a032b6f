"""Healthy: hidden words are told from both sides, so each place sees later ones; most places have no label."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH, HIDDEN = 40, 24, 40


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS + 1, 32), nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, TOKENS)

    def forward(self, ids):
        return self.head(self.layers(self.tokens(ids) + self.places(torch.arange(LENGTH))))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 151):
    text = (torch.randint(TOKENS, (16, 1)) + torch.arange(LENGTH) * torch.randint(1, 4, (16, 1))) % TOKENS
    hidden = torch.rand(text.shape) < 0.15
    logits = model(torch.where(hidden, HIDDEN, text))
    loss = F.cross_entropy(logits.flatten(0, 1), torch.where(hidden, text, -100).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
