# expect: sick
# symptom: the very first loss is many times ln(vocabulary) and takes hundreds of steps to come down; the run ends far above what the same model reaches otherwise
# axis: model
# cause: the output layer is tied to a token embedding that keeps the N(0,1) default of nn.Embedding, so the initial logits have a spread of sqrt(dim) and the softmax is confidently wrong from the first step
# says: (embed|tied|tying|weight.?shar|output (layer|head|projection)|logit).{0,100}(init|std|scale|large|big|huge|variance|spread|n\(0,? ?1\)|unit)|(init|std|scale|variance).{0,80}(embed|tied|tying|logit|output head)|initial.{0,20}logits
# onset_step: 0
# fix: initialise the tied embedding with a small std (0.02), or scale the logits by 1/sqrt(dim)
# mended: the embedding is initialised with std 0.02
"""Masked language modelling with a small BERT-like encoder."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)
np.random.seed(5)

VOCAB, PAD, MASK, FIRST, LENGTH = 260, 0, 1, 4, 32


class TemplateCorpus:
    """Sentences from slot templates: the topic fixes which words may fill the slots."""

    def __init__(self, n=6000, topics=12, seed=9):
        r = np.random.default_rng(seed)
        self.slots = r.integers(FIRST, VOCAB, (topics, 6, 4))
        self.glue = r.integers(FIRST, 40, (topics, 10))
        rows = np.zeros((n, LENGTH), dtype=np.int64)
        for i in range(n):
            t = r.integers(topics)
            for p in range(LENGTH):
                rows[i, p] = self.slots[t, p % 6, r.integers(4)] if p % 2 == 0 else self.glue[t, p % 10]
            rows[i, r.integers(20, LENGTH + 1) :] = PAD
        self.rows = torch.from_numpy(rows)

    def split(self, n_val=400):
        return self.rows[:-n_val], self.rows[-n_val:]


def mask_tokens(ids, gen, rate=0.15):
    labels = ids.clone()
    pick = (torch.rand(ids.shape, generator=gen) < rate) & (ids != PAD)
    labels[~pick] = -100
    how = torch.rand(ids.shape, generator=gen)
    out = ids.clone()
    out[pick & (how < 0.8)] = MASK
    rnd = pick & (how > 0.9)
    out[rnd] = torch.randint(FIRST, VOCAB, (int(rnd.sum()),), generator=gen)
    return out, labels


class Bert(nn.Module):
    def __init__(self, dim=80, heads=4, depth=2):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.position = nn.Embedding(LENGTH, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        if MENDED:
            nn.init.normal_(self.word.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, ids, labels):
        x = self.word(ids) + self.position(torch.arange(ids.size(1)))
        h = self.encoder(x, src_key_padding_mask=ids == PAD)
        picked = labels != -100
        logits = self.transform(h[picked]) @ self.word.weight.T + self.bias
        loss = F.cross_entropy(logits, labels[picked])
        return loss, (logits.argmax(-1) == labels[picked]).float().mean()


def lr_at(step, total, peak=1e-3, warm=40):
    return peak * min((step + 1) / warm, 1.0) * max(0.05, 1 - max(0, step - warm) / (total - warm))


train, val = TemplateCorpus().split()
model = Bert()
decay = [p for p in model.parameters() if p.dim() > 1]
other = [p for p in model.parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": other, "weight_decay": 0.0}], lr=1e-3)
gen = torch.Generator().manual_seed(77)
TOTAL, BS = 300, 28
for step in range(TOTAL):
    for g in opt.param_groups:
        g["lr"] = lr_at(step, TOTAL)
    ids = train[torch.randint(0, len(train), (BS,), generator=gen)]
    loss, acc = model(*mask_tokens(ids, gen))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 25 == 0:
        print(f"step {step:3d} mlm loss {loss.item():8.3f} acc {acc.item():.3f}")
    if step % 100 == 99:
        model.eval()
        with torch.no_grad():
            vl, va = model(*mask_tokens(val, torch.Generator().manual_seed(1)))
        model.train()
        print(f"  validation loss {vl.item():.3f} acc {va.item():.3f}")
