# expect: sick
# cause: The encoder's output and state are detached before they reach the decoder, so the encoder gets no gradient and stays at its random start.
import string

import torch
from torch import nn

torch.manual_seed(17)
CHARS = string.ascii_lowercase[:12]
BOS = len(CHARS)
LEN = 7


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), d)
        self.gru = nn.GRU(d, d, batch_first=True)

    def forward(self, x):
        return self.gru(self.emb(x))


class Decoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS) + 1, d)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, len(CHARS))

    def forward(self, y_in, hidden):
        o, _ = self.gru(self.emb(y_in), hidden)
        return self.out(o)


class Seq2Seq(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.encoder = Encoder(d)
        self.decoder = Decoder(d)

    def forward(self, src, tgt_in):
        _, hidden = self.encoder(src)
        hidden = hidden.detach()
        return self.decoder(tgt_in, hidden)


def batch(n):
    src = torch.randint(0, len(CHARS), (n, LEN))
    tgt = src.flip(1)
    tgt_in = torch.cat([torch.full((n, 1), BOS), tgt[:, :-1]], 1)
    return src, tgt_in, tgt


model = Seq2Seq()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
ce = nn.CrossEntropyLoss()
for step in range(450):
    src, tgt_in, tgt = batch(64)
    logits = model(src, tgt_in)
    loss = ce(logits.reshape(-1, len(CHARS)), tgt.reshape(-1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 49:
        acc = (logits.argmax(-1) == tgt).float().mean()
        print(f"{step + 1:4d} loss {loss.item():.4f} char accuracy {acc:.3f}")

src, tgt_in, tgt = batch(500)
with torch.no_grad():
    pred = model(src, tgt_in).argmax(-1)
print(
    "whole strings right:",
    (pred == tgt).all(1).float().mean().item(),
    "chars right:",
    (pred == tgt).float().mean().item(),
)
