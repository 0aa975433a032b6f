# expect: sick
# fault: loss mean taken over padding
# onset_step: 0
# says: (?i)(pad|ignore_index|mask|-100|trailing|filler|dominat|most(ly)? (of the )?(label|target|token|position)s?)
# note: the pad token (0) fills some four fifths of each target and is not ignored, so the loss mostly measures the prediction of padding.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
PAD, BOS, EOS = 0, 1, 2


def make_pair():
    n = int(torch.randint(3, 6, (1,))) if torch.rand(1) < 0.9 else 30
    s = torch.randint(3, 20, (n,))
    return s, torch.cat([torch.tensor([BOS]), s.flip(0), torch.tensor([EOS])])


def collate(pairs):
    return (
        pad_sequence([p[0] for p in pairs], batch_first=True, padding_value=PAD),
        pad_sequence([p[1] for p in pairs], batch_first=True, padding_value=PAD),
    )


class Seq2Seq(nn.Module):
    def __init__(self, V=20, d=48):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.enc = nn.GRU(d, d, batch_first=True)
        self.dec = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, src, tgt_in):
        _, h = self.enc(self.emb(src))
        return self.out(self.dec(self.emb(tgt_in), h)[0])


model = Seq2Seq()
loader = DataLoader([make_pair() for _ in range(3200)], batch_size=32, shuffle=True, collate_fn=collate)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for i, (src, tgt) in enumerate(loader):
    logits = model(src, tgt[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 20), tgt[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 10 == 0:
        print(f"iter {i} loss {loss.item():.4f}")
