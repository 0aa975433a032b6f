"""An encoder reads rows of different lengths that are filled up with zeros, and nobody passes it the mask."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

PLACES = 20


def texts(count):
    ids = torch.randint(1, 24, (count, PLACES))
    ids[torch.arange(PLACES) >= torch.randint(5, PLACES + 1, (count, 1))] = 0
    return ids, ((ids == 3).sum(1) > (ids == 8).sum(1)).long()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(24, 32), nn.Embedding(PLACES, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(32, 2)

    def forward(self, ids):
        hidden = self.encoder(self.words(ids) + self.places(torch.arange(PLACES)))  # <- bites
        return self.head(hidden[:, 0])


ids, answers = texts(1024)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 121):
    batch = torch.randint(0, 1024, (32,))
    loss = F.cross_entropy(model(ids[batch]), answers[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
