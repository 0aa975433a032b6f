# expect: sick
# symptom: the loss falls normally for 299 steps, at step 300 it is NaN and stays NaN
# axis: model
# cause: one pair of the batch of step 300 has an empty second text; the masked mean divides a sum over nothing by 0
# says: (?i)singular-operation|no-supervised-tokens|0 ?/ ?0|divi(de|sion).{0,40}(0(?![.\d])|zero)|(empty|no|zero|all).{0,40}(text|mask|token|pad|row|sequence|length)|mean (over|of) nothing|denominator
# onset_step: 300
# fix: clamp the denominator of the mean at 1
# mended: mask.sum(1).clamp(min=1)
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(210)
V, T, B, STEPS = 50, 12, 24, 340
LEAST = 1 if os.environ.get("MENDED") == "1" else 0
gen = torch.Generator().manual_seed(7)
topic = torch.randint(0, 5, (V,), generator=gen)
topic[0] = -1


def texts(n):
    t = torch.randint(0, 5, (n,), generator=gen)
    own = torch.multinomial((topic[None] == torch.arange(5)[:, None]).float(), n * T, True, generator=gen).view(5, n, T)
    ids = torch.where(
        torch.rand(n, T, generator=gen) < 0.6, own[t, torch.arange(n)], torch.randint(1, V, (n, T), generator=gen)
    )
    length = torch.randint(3, T + 1, (n, 1), generator=gen)
    return ids * (torch.arange(T) < length), t


a, ta = texts(B * STEPS)
b, tb = texts(B * STEPS)
same = torch.rand(B * STEPS, generator=gen) < 0.4
b[same], tb[same] = a[same].flip(1), ta[same]
b[299 * B + 13] = 0
data = DataLoader(TensorDataset(a, b, (ta == tb).long()), batch_size=B)


class Pairs(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(V, d, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))
        self.head = nn.Sequential(nn.Linear(3 * d, 48), nn.ReLU(), nn.Linear(48, 2))

    def pool(self, ids):
        m = (ids != 0).float()[..., None]
        x = self.tok(ids)
        return ((x + self.mix(x)) * m).sum(1) / m.sum(1).clamp(min=LEAST)

    def forward(self, a, b):
        u, v = self.pool(a), self.pool(b)
        return self.head(torch.cat([u, v, (u - v).abs()], -1))


net = Pairs()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step, (x, y, same) in enumerate(data, 1):
    loss = F.cross_entropy(net(x, y), same)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or 297 < step < 304:
        print(f"step {step} loss {loss.item():.4f}")
