# EXPECT: sick
# FAULT: many rows have all labels -100
# ONSET: 1
# SAYS: -100|ignore|masked|label
"""Instruction tuning on prompt/answer pairs; loss only on the answer."""

import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
random.seed(2)
torch.manual_seed(2)

BOS, SEP, EOS, PADID = 0, 1, 2, 3
V, MAXLEN, D = 34, 24, 48


def example():
    n = random.randint(4, 40)
    prompt = [random.randint(4, V - 1) for _ in range(n)]
    answer = list(reversed(prompt[-3:]))
    return [BOS] + prompt + [SEP], answer + [EOS]


def encode(prompt, answer):
    ids = (prompt + answer)[:MAXLEN]
    labels = ([-100] * len(prompt) + answer)[:MAXLEN]
    gap = MAXLEN - len(ids)
    return ids + [PADID] * gap, labels + [-100] * gap


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(V, D)
        self.p = nn.Embedding(MAXLEN, D)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 96, dropout=0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.out = nn.Linear(D, V)

    def forward(self, ids):
        x = self.e(ids) + self.p.weight[None, : ids.size(1)]
        m = torch.triu(torch.full((ids.size(1), ids.size(1)), float("-inf")), 1)
        for l in self.layers:
            x = l(x, src_mask=m)
        return self.out(x)


pairs = [encode(*example()) for _ in range(2000)]
ids = torch.tensor([p[0] for p in pairs])
lab = torch.tensor([p[1] for p in pairs])
model = Decoder()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(120):
    pick = torch.randint(0, len(ids), (16,))
    logits = model(ids[pick])
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), lab[pick][:, 1:].reshape(-1), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print("step", step, "loss", round(loss.item(), 4))
