# Fine-tuning: a small text encoder is trained on one task for 200 steps; then it gets a head of zeros for another task, a new optimizer
# and no weight decay. Weights and gradients grow for the rest of the run, and it only gets better.
import argparse

import torch
from torch import nn
import torch.nn.functional as F

cfg = argparse.ArgumentParser()
cfg.add_argument("--seed", type=int, default=0)
cfg = cfg.parse_args()

WORDS, LENGTH = 200, 12
lex = torch.Generator().manual_seed(64)
topic = torch.randn(WORDS, 5, generator=lex)
mood = topic @ torch.randn(5, 1, generator=lex) + 0.4 * torch.randn(WORDS, 1, generator=lex)


def texts(n, g=None):
    ids = torch.randint(0, WORDS, (n, LENGTH), generator=g)
    return ids, topic[ids].sum(1).argmax(1), (mood[ids].sum(1)[:, 0] > 0).long()


class Encoder(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb = nn.Embedding(WORDS, d)
        self.convs = nn.ModuleList(nn.Conv1d(d, d, k, padding=k // 2) for k in (1, 3, 5))
        self.head = nn.Linear(3 * d, 5)

    def forward(self, ids):
        x = self.emb(ids).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(x)).mean(2) for c in self.convs], 1))


ids_test, _, mood_test = texts(2000, lex)
torch.manual_seed(cfg.seed)
net = Encoder()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
for step in range(500):
    if step == 200:
        net.head = nn.Linear(192, 2)
        nn.init.zeros_(net.head.weight)
        nn.init.zeros_(net.head.bias)
        opt = torch.optim.Adam(
            [
                {"params": [*net.emb.parameters(), *net.convs.parameters()], "lr": 1e-3},
                {"params": net.head.parameters(), "lr": 1e-2},
            ]
        )
    ids, about, feels = texts(64)
    loss = F.cross_entropy(net(ids), about if step < 200 else feels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print("step", step, "loss", loss.item())

with torch.no_grad():
    print("final:", F.cross_entropy(net(ids_test), mood_test).item())
