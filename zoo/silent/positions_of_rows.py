"""A table of positions is cut by the first axis of a batch that comes first."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 32)
        self.register_buffer("pe", torch.randn(64, 1, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        x = self.table(x)
        x = x + self.pe[: x.size(0)]  # <- bites
        return self.head(self.layer(x).mean(1))


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 201):
    ids = torch.randint(1, 10, (32, 8))
    labels = (ids[:, 0] > ids[:, -1]).long()
    loss = F.cross_entropy(model(ids), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
