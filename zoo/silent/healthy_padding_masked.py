"""The mask is passed to the encoder, and the mean leaves padding out; beside it a causal model that needs no mask."""

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
    def __init__(self, *, causal):
        super().__init__()
        self.words, self.places, self.causal = nn.Embedding(24, 32), nn.Embedding(PLACES, 32), causal
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(32, 24 if causal else 2)

    def forward(self, ids):
        x, padding = self.words(ids) + self.places(torch.arange(PLACES)), ids == 0
        if self.causal:
            return self.head(self.encoder(x, nn.Transformer.generate_square_subsequent_mask(PLACES), is_causal=True))
        kept = ~padding[..., None]
        hidden = self.encoder(x, src_key_padding_mask=padding)
        return self.head((hidden * kept).sum(1) / kept.sum(1))


ids, answers = texts(1024)
reader, writer = Reader(causal=False), Reader(causal=True)
optimizer = torch.optim.Adam([*reader.parameters(), *writer.parameters()], lr=2e-3)
for step in range(1, 121):
    batch = torch.randint(0, 1024, (32,))
    loss = F.cross_entropy(reader(ids[batch]), answers[batch])
    scores, following = writer(ids[batch])[:, :-1], ids[batch][:, 1:]
    loss = loss + F.cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
