# expect: sick
# fault: hidden states pass through numpy in the middle of the network
# onset_step: 0
# says: (?i)(no_grad|detach|numpy|no gradient|without grad|grad(ient)?s? (is|are)? ?(none|missing|never)|never (learn|train|mov|chang|updat|receiv)|not (learn|train|updat)|cut off|graph|unused|frozen)
# note: a pooling step written with numpy cuts the autograd graph so that embedding and GRU never receive a gradient though the optimizer holds them.
import re
import inspect
import string
import textwrap
import itertools
import numpy as np
import torch
from torch import nn

"""Sentence pair scorer: is the function name from the same module as the line?"""

mods = [string, textwrap, itertools, re, inspect]
lines, labels = [], []
for i, m in enumerate([string, textwrap, re, inspect]):
    for ln in inspect.getsource(m).splitlines():
        toks = re.findall(r"[A-Za-z_]+", ln)
        if len(toks) >= 3:
            lines.append(toks[:12])
            labels.append(i)
vocab = {w: k + 1 for k, w in enumerate(sorted({w for l in lines for w in l}))}


def encode(toks):
    ids = [vocab[t] for t in toks]
    return ids + [0] * (12 - len(ids)), len(ids)


class Pooler(nn.Module):
    """top-2 mean pool; no torch op for it so we go through numpy"""

    def forward(self, h, n):
        arr = h.data.numpy()
        rows = []
        for r, k in zip(arr, n):
            v = r[:k]
            top = np.sort(v, axis=0)[-2:]
            rows.append(top.mean(0))
        return torch.from_numpy(np.stack(rows))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(vocab) + 1, 32, padding_idx=0)
        self.gru = nn.GRU(32, 48, batch_first=True, bidirectional=True)
        self.pool = Pooler()
        self.out = nn.Linear(96, 4)

    def forward(self, ids, n):
        h, _ = self.gru(self.emb(ids))
        return self.out(self.pool(h, n))


def get_batches(bs, rng):
    order = rng.permutation(len(lines))
    for i in range(0, len(order) - bs, bs):
        enc = [encode(lines[j]) for j in order[i : i + bs]]
        yield (
            torch.tensor([e[0] for e in enc]),
            [e[1] for e in enc],
            torch.tensor([labels[j] for j in order[i : i + bs]]),
        )


torch.manual_seed(3)
rng = np.random.default_rng(3)
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
crit = nn.CrossEntropyLoss()
it = 0
while it < 140:
    for ids, n, y in get_batches(32, rng):
        loss = crit(model(ids, n), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if it % 20 == 0:
            print(it, f"{loss.item():.3f}")
        it += 1
        if it >= 140:
            break
