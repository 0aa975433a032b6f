# expect: healthy
# fault: none
# note: BERT-like masked LM: labels at the same positions, -100 elsewhere, bidirectional attention, no shift.
import heapq
import torch
from torch import nn

raw = open(heapq.__file__, encoding="utf8").read()
cs = ["[M]"] + sorted(set(raw))
lut = {c: i for i, c in enumerate(cs)}
ids = torch.tensor([lut[c] for c in raw])


class Bert(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.t, self.p = nn.Embedding(len(cs), d), nn.Embedding(32, d)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.o = nn.Linear(d, len(cs))

    def forward(self, x):
        return self.o(self.enc(self.t(x) + self.p.weight[: x.size(1)]))


torch.manual_seed(16)
m = Bert()
opt = torch.optim.AdamW(m.parameters(), lr=2e-3)
for s in range(160):
    x = torch.stack([ids[i : i + 32] for i in torch.randint(0, len(ids) - 32, (12,)).tolist()])
    mask = torch.rand(x.shape) < 0.2
    lab = x.masked_fill(~mask, -100)
    loss = nn.functional.cross_entropy(m(x.masked_fill(mask, 0)).flatten(0, 1), lab.flatten(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
