# expect: sick
# symptom: the loss of the first step is normal, from the second on it is NaN
# axis: optimizer
# cause: both towers are in float16 with Adam's epsilon of 1e-8, which is 0 in float16: weights without a gradient divide 0 by 0 in the first update
# says: (?i)optimizer-epsilon-underflow|\beps(ilon)?\b
# onset_step: 1
# fix: float32 weights, or an epsilon that float16 can hold (1e-4)
# mended: eps=1e-4
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(207)
V, T, B = 60, 10, 32
EPS = 1e-4 if os.environ.get("MENDED") == "1" else 1e-8
gen = torch.Generator().manual_seed(9)
table = torch.randn(V, 24, generator=gen)


def draw(n):
    ids = torch.randint(0, V, (n, T), generator=gen)
    return ids, table[ids].mean(1) * 3 + 0.1 * torch.randn(n, 24, generator=gen)


class Clip(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.words = nn.Embedding(V, d)
        self.text = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        self.image = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, d))
        self.scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, ids, img):
        a = F.normalize(self.text(self.words(ids).mean(1)), dim=-1, eps=1e-4)
        b = F.normalize(self.image(img), dim=-1, eps=1e-4)
        return (a @ b.t()) * self.scale.exp()


net = Clip().half()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=EPS)
for step in range(1, 301):
    ids, img = draw(B)
    logits = net(ids, img.half()).float()
    want = torch.arange(B)
    loss = (F.cross_entropy(logits, want) + F.cross_entropy(logits.t(), want)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 or step < 4:
        print(f"step {step} loss {loss.item():.4f}")
