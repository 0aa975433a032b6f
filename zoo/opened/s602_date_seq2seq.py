# expect: sick
# symptom: the seq2seq loss falls a little, then stays on a plateau; the decoder writes plausible dates that have nothing to do with the source
# axis: model
# cause: the padding mask is inverted: True marks the real tokens, but key_padding_mask in nn.Transformer ignores the True positions, so attention sees only the padding
# says: ((pad\w*|attention|key.?padding|src).{0,40}mask.{0,80}(invert|revers|flip|negat|opposite|polarity|wrong way|swapp|upside|backward|complement|masks? (out )?(the )?(real|valid|actual)|only.{0,15}pad))|((invert|revers|flip|opposite|polarity|negat)\w*.{0,60}mask)|(attend\w*|attention|sees?).{0,40}only.{0,30}pad|real (source )?tokens.{0,40}(masked|ignored|hidden)
# onset_step: 1
# fix: pass the complement (src == PAD) as src_key_padding_mask and memory_key_padding_mask
# mended: the mask is negated before it goes into nn.Transformer
import argparse
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=500)
ap.add_argument("--lr", type=float, default=2e-3)
ap.add_argument("--dim", type=int, default=48)
args = ap.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
MENDED = os.environ.get("MENDED") == "1"

MONTHS = ("january february march april may june july august september october november december").split()
SRC_LEN = 24
VOCAB = ["<pad>", "<s>", "</s>"] + list("abcdefghijklmnopqrstuvwxyz0123456789 ,-/")
IDX = {c: i for i, c in enumerate(VOCAB)}
PAD, BOS, EOS = 0, 1, 2


def make_pair():
    y, m, d = random.randint(1950, 2029), random.randint(1, 12), random.randint(1, 28)
    style = random.random()
    if style < 0.4:
        src = f"{d} {MONTHS[m - 1]} {y}"
    elif style < 0.7:
        src = f"{MONTHS[m - 1]} {d}, {y}"
    else:
        src = f"{d}/{m}/{y}"
    return src, f"{y}-{m:02d}-{d:02d}"


class Dates(Dataset):
    def __init__(self, n):
        self.pairs = [make_pair() for _ in range(n)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        s, t = self.pairs[i]
        return [IDX[c] for c in s], [BOS] + [IDX[c] for c in t] + [EOS]


def collate(rows):
    src = torch.full((len(rows), SRC_LEN), PAD)
    for i, (s, _) in enumerate(rows):
        src[i, : len(s)] = torch.tensor(s)
    tgt = torch.tensor([t for _, t in rows])
    attention_mask = src != PAD
    return src, attention_mask, tgt


class PositionalEncoding(nn.Module):
    def __init__(self, d, n=64):
        super().__init__()
        pos, div = torch.arange(n)[:, None], torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(n, d)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class Translator(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.d = d
        self.emb, self.pos = nn.Embedding(len(VOCAB), d), PositionalEncoding(d)
        self.tf = nn.Transformer(d, 4, 2, 2, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(d, len(VOCAB))

    def forward(self, src, attention_mask, tgt):
        pad_mask = ~attention_mask if MENDED else attention_mask
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        h = self.tf(
            self.pos(self.emb(src) * math.sqrt(self.d)),
            self.pos(self.emb(tgt) * math.sqrt(self.d)),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=pad_mask,
            memory_key_padding_mask=pad_mask,
        )
        return self.out(h)


@torch.no_grad()
def exact_match(model, loader):
    model.eval()
    ok = n = 0
    for src, mask, tgt in loader:
        ys = torch.full((len(src), 1), BOS)
        for _ in range(tgt.size(1) - 1):
            ys = torch.cat([ys, model(src, mask, ys)[:, -1].argmax(-1, keepdim=True)], 1)
        ok += (ys == tgt).all(1).sum().item()
        n += len(src)
    model.train()
    return ok / n


train = DataLoader(Dates(12000), batch_size=32, shuffle=True, collate_fn=collate, drop_last=True)
test_set = Dates(256)
test = DataLoader(test_set, batch_size=128, collate_fn=collate)
model = Translator(args.dim)
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
opt = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 60))

step, running = 0, 0.0
while step < args.steps:
    for src, mask, tgt in train:
        logits = model(src, mask, tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running = loss.item() if step == 0 else 0.95 * running + 0.05 * loss.item()
        step += 1
        if step % 100 == 0:
            print(f"step {step} loss {running:.4f}", flush=True)
        if step >= args.steps:
            break
print(f"exact match on held-out dates: {exact_match(model, test):.3f}")
src, mask, tgt = collate([test_set[0]])
with torch.no_grad():
    guess = model(src, mask, tgt[:, :-1]).argmax(-1)[0]
print(test_set.pairs[0], "->", "".join(VOCAB[i] for i in guess.tolist() if i > 2))
