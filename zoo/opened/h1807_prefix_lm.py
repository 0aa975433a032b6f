# expect: healthy
# symptom: attention over the source part has no causal mask, labels equal the inputs (shift inside the model), the loss is a sum (values in the hundreds), gradients pile up over several backward calls and are scaled by hand before the step
# axis: none
# mended: none
"""Prefix language model for a toy translation task; micro-batches of uneven length, normalised by tokens."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)
random.seed(9)

WORDS, PAD, BOS, EOS = 30, 0, 1, 2
VOCAB, MAXLEN, DIM = 3 + 2 * WORDS, 26, 64
perm = list(range(WORDS))
random.shuffle(perm)


def sentence():
    """Source: adjective-noun pairs; target: noun first, other vocabulary."""
    n = random.randint(2, 5)
    src, tgt = [], []
    for _ in range(n):
        a, b = random.randrange(WORDS), random.randrange(WORDS)
        src += [3 + a, 3 + b]
        tgt += [3 + WORDS + perm[b], 3 + WORDS + perm[a]]
    return src + [BOS], tgt + [EOS]


def collate(pairs):
    size = max(len(s) + len(t) for s, t in pairs)
    ids = torch.full((len(pairs), size), PAD)
    prefix = torch.zeros(len(pairs), dtype=torch.long)
    for i, (s, t) in enumerate(pairs):
        ids[i, : len(s) + len(t)] = torch.tensor(s + t)
        prefix[i] = len(s)
    return ids, prefix


class Layer(nn.Module):
    def __init__(self, d=DIM, h=4):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x, mask):
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.ff(self.n2(x))


class PrefixLM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(MAXLEN, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)
        nn.init.normal_(self.tok.weight, std=0.2)
        nn.init.normal_(self.pos.weight, std=0.2)

    def forward(self, ids, prefix, labels=None):
        T = ids.size(1)
        t = torch.arange(T)
        in_prefix = t[None] < prefix[:, None]
        mask = (t[None, None, :] <= t[None, :, None]) | in_prefix[:, None, :]
        x = self.tok(ids) + self.pos.weight[:T]
        for layer in self.layers:
            x = layer(x, mask.unsqueeze(1))
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        target = labels[:, 1:].clone()
        target[(t[None, 1:] < prefix[:, None]) | (labels[:, 1:] == PAD)] = -100
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum")
        return loss, (target != -100).sum()


@torch.no_grad()
def translate(model, src):
    ids, n = torch.tensor([src]), torch.tensor([len(src)])
    while ids.size(1) < MAXLEN:
        nxt = model(ids, n)[0, -1].argmax()
        ids = torch.cat([ids, nxt.view(1, 1)], 1)
        if nxt == EOS:
            break
    return ids[0, len(src) :].tolist()


model = PrefixLM()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
UPDATES, MICRO = 400, 3
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1, (s + 1) / 40) * (0.02 + 0.49 * (1 + math.cos(math.pi * s / UPDATES)))
)
for update in range(UPDATES):
    total, tokens = 0.0, 0
    for _ in range(MICRO):
        ids, prefix = collate([sentence() for _ in range(random.randint(8, 20))])
        loss, n = model(ids, prefix, labels=ids)
        loss.backward()
        total, tokens = total + loss.item(), tokens + int(n)
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= tokens
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
    if update % 25 == 0:
        print(f"update {update:3d} summed loss {total:8.1f} over {tokens} tokens = {total / tokens:.4f} per token")

model.eval()
tests = [sentence() for _ in range(60)]
print("exact translations", sum(translate(model, s) == t for s, t in tests), "of", len(tests))
