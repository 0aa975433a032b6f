# expect: sick
# symptom: NaN loss at step 20, everything NaN afterwards
# axis: loss
# cause: a row without any supervised token (all targets are padding) makes its per-row mean 0/0
# says: (?i)(0 ?/ ?0|(no|without|zero|empty).{0,30}(supervised|target|label|token|real position)|mask.{0,30}(sum|empty|zero)|all.{0,20}(pad|mask|ignored))
# onset_step: 20
# fix: clamp the denominator of the row mean at 1
# mended: MENDED=1 python s15_date_normaliser.py
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(15)
PAD, BOS, V = 0, 1, 13
FLOOR = 1.0 if os.environ.get("MENDED") == "1" else 0.0


class Dates(Dataset):
    """Digits with separators in, digits alone out (0 pads)."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(2)
        self.src = torch.randint(3, V, (n, 8), generator=g)
        self.src[torch.rand(n, 8, generator=g) < 0.3] = 2
        self.src[19 * 32 + 11] = 2

    def __len__(self):
        return len(self.src)

    def __getitem__(self, i):
        s = self.src[i]
        keep = s[s != 2]
        out = torch.full((8,), PAD)
        out[: len(keep)] = keep
        return s, out


class Seq2Seq(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.es, self.et = nn.Embedding(V, d), nn.Embedding(V, d)
        self.enc = nn.GRU(d, d, batch_first=True)
        self.dec = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(2 * d, V)

    def forward(self, src, tgt_in):
        mem, h = self.enc(self.es(src))
        dec, _ = self.dec(self.et(tgt_in), h)
        ctx = F.softmax(dec @ mem.transpose(1, 2) / 7.0, -1) @ mem
        return self.out(torch.cat([dec, ctx], -1))


net = Seq2Seq()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
loader = DataLoader(Dates(32 * 220), batch_size=32)
for step, (src, tgt) in enumerate(loader, 1):
    tgt_in = torch.cat([torch.full((len(tgt), 1), BOS), tgt[:, :-1]], 1)
    logits = net(src, tgt_in)
    nll = F.cross_entropy(logits.transpose(1, 2), tgt, reduction="none")
    w = (tgt != PAD).float()
    per_row = (nll * w).sum(1) / w.sum(1).clamp(min=FLOOR)
    loss = per_row.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
