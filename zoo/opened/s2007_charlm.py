# expect: sick
# symptom: char language model plateaus around the bigram level; more layers, other learning rates change nothing; no NaN
# axis: model
# cause: nn.MultiheadAttention was built without batch_first=True while inputs are (batch, time, dim), so attention (and the causal mask) runs across the batch instead of over time
# says: batch[_ ]first|(across|over|along|between|mix\w*)\W+(\w+\W+){0,4}(the )?(batch|examples|samples|sequences in the batch)|(batch|time|sequence)( dimension| axis)?\W+(\w+\W+){0,5}(swapped|transposed|confus\w+|mixed up|interchanged)|batch (dimension|axis) as (the )?(sequence|time)
# onset_step: 0
# fix: nn.MultiheadAttention(cfg.dim, cfg.heads, batch_first=True)
# mended: yes
import os
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(11)
torch.set_num_threads(1)


@dataclass
class Config:
    block: int = 32
    batch: int = 32
    dim: int = 64
    heads: int = 4
    layers: int = 2
    steps: int = 400
    lr: float = 2e-3
    warmup: int = 40
    eval_every: int = 100


def make_corpus(n_words, seed):
    lex_rng = np.random.default_rng(5)
    syl = ["ka", "to", "mi", "ren", "sol", "ba", "du", "vik", "pe", "lan", "or", "chi", "na", "gu"]
    lexicon = ["".join(lex_rng.choice(syl, size=lex_rng.integers(2, 4))) for _ in range(50)]
    follow = lex_rng.dirichlet(np.full(50, 0.06), size=50)
    rng = np.random.default_rng(seed)
    words, w = [], 0
    for _ in range(n_words):
        w = rng.choice(50, p=follow[w])
        words.append(lexicon[w])
    return " ".join(words)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        kw = {"batch_first": True} if MENDED else {}
        self.attn = nn.MultiheadAttention(cfg.dim, cfg.heads, dropout=0.0, **kw)
        mask = torch.triu(torch.ones(cfg.block, cfg.block, dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        out, _ = self.attn(x, x, x, attn_mask=self.mask, need_weights=False)
        return out


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1 = nn.LayerNorm(cfg.dim)
        self.ln2 = nn.LayerNorm(cfg.dim)
        self.attn = Attention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, cfg, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.block, cfg.dim)
        self.blocks = nn.Sequential(*[Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        return self.head(self.norm(self.blocks(x)))


def get_batch(data, cfg):
    start = torch.randint(0, len(data) - cfg.block - 1, (cfg.batch,))
    x = torch.stack([data[s : s + cfg.block] for s in start])
    y = torch.stack([data[s + 1 : s + cfg.block + 1] for s in start])
    return x, y


@torch.no_grad()
def evaluate(model, data, cfg, n=5):
    model.eval()
    tot = 0.0
    for _ in range(n):
        x, y = get_batch(data, cfg)
        tot += F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    model.train()
    return tot / n


def main():
    cfg = Config()
    train_txt, val_txt = make_corpus(12000, 1), make_corpus(3000, 2)
    chars = sorted(set(train_txt + val_txt))
    stoi = {c: i for i, c in enumerate(chars)}
    train = torch.tensor([stoi[c] for c in train_txt])
    val = torch.tensor([stoi[c] for c in val_txt])
    model = CharLM(cfg, len(chars))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, betas=(0.9, 0.98))

    def lr_at(s):
        if s < cfg.warmup:
            return (s + 1) / cfg.warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (s - cfg.warmup) / (cfg.steps - cfg.warmup)))

    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    for step in range(cfg.steps):
        x, y = get_batch(train, cfg)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        if (step + 1) % cfg.eval_every == 0:
            v = evaluate(model, val, cfg)
            print(f"-- val loss {v:.4f} bpc {v / math.log(2):.3f}")


if __name__ == "__main__":
    main()
