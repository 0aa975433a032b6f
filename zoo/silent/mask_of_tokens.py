"""The tokenizer's mask, 1 for tokens, is given as `src_key_padding_mask`, which hides what is True."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH, PAD = 40, 24, 0


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, ids, mask):
        x = self.table(ids) + self.places(torch.arange(LENGTH))
        return self.head(self.layers(x, src_key_padding_mask=mask)[:, 0])  # <- bites: ~mask


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 81):
    ends = torch.randint(8, LENGTH - 2, (16, 1))
    mask = torch.arange(LENGTH) < ends
    ids = torch.randint(1, TOKENS, (16, LENGTH)).masked_fill(~mask, PAD)
    loss = F.cross_entropy(model(ids, mask), ids[:, 1] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
