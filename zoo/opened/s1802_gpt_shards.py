# expect: sick
# symptom: the loss goes down smoothly for 400 steps, then jumps within one step far above its level as the third shard begins, and the validation loss on the first source gets bad and stays so
# axis: data
# cause: the character vocabulary is built anew for each shard; the third shard also has digits and capitals, so the same letters get other ids than before
# says: (vocab|tokeni[sz]er|stoi|char(acter)?.?(map|id|set)|token.?id|encod).{0,80}(per|each|every|own|differ|separate|inconsisten|mismatch|shift|chang|not shared|not the same|another|rebuil)|(per|each|every|different|separate|inconsistent|mismatched|shifted|changed).{0,30}(shard|file|chunk)?.{0,30}(vocab|tokeni[sz]er|token.?ids?|mapping|encod)
# onset_step: 400
# fix: build one vocabulary over all shards (or save it with the first one) and encode every shard with it
# mended: one tokenizer, built over the text of all shards, encodes each of them
"""Small GPT over text shards that are read one after another, as they come from the crawl."""

import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

CTX, BS, STEPS_PER_SHARD, MAX_VOCAB = 40, 24, 200, 80


class Crawl:
    """Pseudo articles; the news part mentions years, amounts and names."""

    def __init__(self, seed=5):
        self.rng = np.random.default_rng(seed)
        cons, vow = list("bdfghklmnprstvwz"), list("aeiou")
        self.words = [
            "".join(self.rng.choice(cons) + self.rng.choice(vow) for _ in range(self.rng.integers(1, 4)))
            for _ in range(150)
        ]
        self.follow = self.rng.integers(0, 150, (150, 3))

    def article(self, news):
        w, out = int(self.rng.integers(150)), []
        for _ in range(40):
            word = self.words[w]
            if news and self.rng.random() < 0.02:
                word = word.capitalize()
            out.append(word)
            if news and self.rng.random() < 0.01:
                out.append("in " + str(self.rng.integers(1950, 2024)))
            w = int(self.follow[w, self.rng.integers(3)])
        return " ".join(out) + ".\n"

    def shard(self, n, news=False):
        return "".join(self.article(news) for _ in range(n))


class CharTokenizer:
    def __init__(self, corpus):
        self.itos = sorted(set(corpus))
        self.stoi = {c: i for i, c in enumerate(self.itos)}

    def encode(self, s):
        return torch.tensor([self.stoi[c] for c in s], dtype=torch.long)


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.a, self.n1, self.n2 = Attention(d, h), nn.RMSNorm(d), nn.RMSNorm(d)
        self.gate, self.up, self.down = (
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(2 * d, d, bias=False),
        )

    def forward(self, x):
        x = x + self.a(self.n1(x))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LM(nn.Module):
    def __init__(self, vocab, d=64, h=4, n=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(CTX, d))
        self.layers = nn.Sequential(*[Layer(d, h) for _ in range(n)])
        self.norm, self.out = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.emb.weight, std=0.05)
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, x):
        return self.out(self.norm(self.layers(self.emb(x) + self.pos[: x.size(1)])))


crawl = Crawl()
texts = [crawl.shard(1500), crawl.shard(1500), crawl.shard(1500, news=True)]
val_text = crawl.shard(60)
shared = CharTokenizer("".join(texts))
shards, val = [], None
for t in texts:
    tok = shared if MENDED else CharTokenizer(t)
    shards.append(tok.encode(t))
    if val is None:
        val = tok.encode(val_text)
    print(f"shard of {len(t)} chars, {len(tok.itos)} symbols")

model = LM(MAX_VOCAB)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
total = STEPS_PER_SHARD * len(shards)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=total, pct_start=0.08)


def sample(ids, n=BS):
    at = torch.randint(0, len(ids) - CTX - 1, (n,))
    w = ids[at[:, None] + torch.arange(CTX + 1)]
    return w[:, :-1], w[:, 1:]


def loss_on(ids, n=BS):
    x, y = sample(ids, n)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


step, t0 = 0, time.time()
for si, ids in enumerate(shards):
    for _ in range(STEPS_PER_SHARD):
        loss = loss_on(ids)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} shard {si} loss {loss.item():.3f} ({time.time() - t0:.1f}s)")
        if step % 100 == 99:
            with torch.no_grad():
                print(f"   val {loss_on(val, 128).item():.3f}")
        step += 1
