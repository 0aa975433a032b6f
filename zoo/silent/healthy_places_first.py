"""One model is given [places, rows] and answers so; another has the batch first. Both attend to the places of a row."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

PLACES, ROWS = 12, 32


class Reader(nn.Module):
    def __init__(self, *, batch_first):
        super().__init__()
        self.table, self.place = nn.Embedding(10, 32), nn.Embedding(PLACES, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, 1)
        self.batch_first = batch_first

    def forward(self, ids):
        place = self.place.weight if self.batch_first else self.place.weight[:, None]
        return self.head(self.layers(self.table(ids) + place)).squeeze(-1)


def train(model, given, wanted, steps=100):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        ids = torch.randint(10, (ROWS, PLACES))
        loss = (model(given(ids)) - wanted(ids)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.3f}")


train(Reader(batch_first=False), lambda ids: ids.T, lambda ids: (ids.T[:1] == ids.T).float())
train(Reader(batch_first=True), lambda ids: ids, lambda ids: (ids == ids[:, :1]).float())
