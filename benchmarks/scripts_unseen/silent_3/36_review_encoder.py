# expect: sick
# fault: attention mask of wrong sign (real tokens masked, padding attended)
# onset_step: 0
# says: (?i)(mask|pad|attend|attention)
# note: src_key_padding_mask wants True at padding and gets `ids != PAD`; the encoder so reads only padding.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(19)
PAD, VOCAB, CLASSES = 0, 70, 4


class ReviewEncoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.query = nn.Parameter(torch.randn(1, 1, d))
        self.pool = nn.MultiheadAttention(d, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, CLASSES))

    def forward(self, ids):
        keep = ids.ne(PAD)
        h = self.emb(ids)
        pooled, _ = self.pool(self.query.expand(len(ids), -1, -1), h, h, key_padding_mask=keep)
        return self.mlp(pooled.squeeze(1))


def reviews(n, length=18):
    y = torch.randint(0, CLASSES, (n,))
    ids = torch.randint(2, VOCAB, (n, length))
    marks = torch.randint(0, 8, (n, 3)) * CLASSES + y[:, None] + 2
    ids[:, 1:4] = marks
    lengths = torch.randint(5, length - 1, (n,))
    ids[torch.arange(length)[None] >= lengths[:, None]] = PAD
    return ids, y


model = ReviewEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(180):
    ids, y = reviews(48)
    loss = nn.functional.cross_entropy(model(ids), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
ids, y = reviews(500)
print("final acc", (model(ids).argmax(1) == y).float().mean().item())
