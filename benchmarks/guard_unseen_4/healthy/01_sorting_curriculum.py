# A transformer sorts numbers: lists of 4 first, then 8, then 14. The loss jumps each time the lists grow.
import argparse

import torch
from torch import nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap = ap.parse_args()

KINDS = 24


def lists(n, length, g=None):
    x = torch.randint(0, KINDS, (n, length), generator=g)
    return x, x.sort(1).values


class Sorter(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(KINDS, d)
        self.pos = nn.Embedding(14, d)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, KINDS)

    def forward(self, x):
        return self.out(self.enc(self.tok(x) + self.pos.weight[: x.shape[1]]))


fixed = torch.Generator().manual_seed(6)
x_test, y_test = lists(600, 14, fixed)
torch.manual_seed(ap.seed)
net = Sorter()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(540):
    length = 4 if step < 150 else 8 if step < 330 else 14
    x, y = lists(64, length)
    loss = F.cross_entropy(net(x).transpose(1, 2), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, length, loss.item())

net.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(net(x_test).transpose(1, 2), y_test).item())
