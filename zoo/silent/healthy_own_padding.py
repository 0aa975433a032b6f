"""Healthy: padding has an id of its own, and the end of each text is a label."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
torch.set_num_threads(1)
VOCAB, EOS_ID = 40, 0
PAD_ID = 1


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, 32), nn.Embedding(64, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, VOCAB)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.block(x, src_mask=mask, is_causal=True))


def example():
    text = torch.randint(2, VOCAB, (int(torch.randint(5, 16, ())),))
    return torch.cat([text, torch.tensor([EOS_ID])])


def collate(rows):
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
    labels = ids.clone()
    labels[labels == PAD_ID] = -100
    return ids, labels


model = Tiny()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(40):
    ids, labels = collate([example() for _ in range(16)])
    scores = model(ids)
    loss = nn.functional.cross_entropy(scores[:, :-1].reshape(-1, VOCAB), labels[:, 1:].reshape(-1), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
