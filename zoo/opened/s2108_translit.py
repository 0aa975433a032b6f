# expect: sick
# symptom: teacher-forced loss drops almost to zero within a few hundred steps, yet greedy decoding produces garbage
# axis: model
# cause: the decoder self-attention has no causal mask (tgt_mask is never given), so with teacher forcing every position can see the next token it has to predict
# says: causal|look[- ]?ahead|tgt_mask|target mask|subsequent mask|(see|attend|peek|leak)\w*.*(future|next|later) (target )?(token|position)|future (target )?(token|position)
# onset_step: 0
# fix: give the decoder a causal (square subsequent) tgt_mask
# mended: yes
"""Seq2seq transformer that rewrites a word: mirror the letters, then double every vowel."""

import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

LETTERS = "abcdefghijklmnop"
PAD, BOS, EOS = 0, 1, 2
STOI = {c: i + 3 for i, c in enumerate(LETTERS)}
VOCAB = len(LETTERS) + 3


def rewrite(word):
    out = []
    for c in reversed(word):
        out.append(c)
        if c in "aeio":
            out.append(c)
    return out


def make_pairs(n, seed):
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        w = [rng.choice(LETTERS) for _ in range(rng.randint(2, 5))]
        pairs.append(([STOI[c] for c in w], [STOI[c] for c in rewrite(w)]))
    return pairs


def pad(seqs):
    width = max(map(len, seqs))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in seqs])


class PositionalEmbedding(nn.Module):
    def __init__(self, vocab, dim, max_len=64):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, dim)
        self.scale = math.sqrt(dim)
        nn.init.normal_(self.tok.weight, std=dim**-0.5)
        nn.init.normal_(self.pos.weight, std=0.5)

    def forward(self, ids):
        return self.tok(ids) * self.scale + self.pos.weight[: ids.size(1)]


class Rewriter(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.src_emb = PositionalEmbedding(VOCAB, dim)
        self.tgt_emb = PositionalEmbedding(VOCAB, dim)
        enc = nn.TransformerEncoderLayer(dim, heads, 128, dropout=0.0, batch_first=True, norm_first=True)
        dec = nn.TransformerDecoderLayer(dim, heads, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, 2, norm=nn.LayerNorm(dim))
        self.out = nn.Linear(dim, VOCAB)

    def encode(self, src):
        src_pad = src.eq(PAD)
        return self.encoder(self.src_emb(src), src_key_padding_mask=src_pad), src_pad

    def decode(self, tgt, memory, src_pad):
        tgt_mask = None
        if MENDED:
            n = tgt.size(1)
            tgt_mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        h = self.decoder(
            self.tgt_emb(tgt),
            memory,
            tgt_mask=tgt_mask,
            tgt_key_padding_mask=tgt.eq(PAD),
            memory_key_padding_mask=src_pad,
        )
        return self.out(h)

    def forward(self, src, tgt):
        memory, src_pad = self.encode(src)
        return self.decode(tgt, memory, src_pad)

    @torch.no_grad()
    def greedy(self, src, max_len=12):
        memory, src_pad = self.encode(src)
        ys = torch.full((src.size(0), 1), BOS)
        done = torch.zeros(src.size(0), dtype=torch.bool)
        for _ in range(max_len):
            nxt = self.decode(ys, memory, src_pad)[:, -1].argmax(-1)
            nxt = torch.where(done, torch.full_like(nxt, PAD), nxt)
            ys = torch.cat([ys, nxt[:, None]], 1)
            done |= nxt.eq(EOS)
            if done.all():
                break
        return ys[:, 1:]


def batch_loss(model, pairs):
    src = pad([s for s, _ in pairs])
    tgt = pad([[BOS] + t + [EOS] for _, t in pairs])
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1), ignore_index=PAD)


@torch.no_grad()
def evaluate(model, pairs):
    model.eval()
    loss = batch_loss(model, pairs).item()
    hyp = model.greedy(pad([s for s, _ in pairs])).tolist()
    right = 0
    for h, (_, t) in zip(hyp, pairs):
        cut = h[: h.index(EOS)] if EOS in h else h
        right += cut == t
    model.train()
    return loss, right / len(pairs)


def main():
    torch.manual_seed(3)
    random.seed(3)
    train, dev = make_pairs(6000, 1), make_pairs(128, 2)
    model = Rewriter()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    steps, batch_size, warmup = 400, 48, 40
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * s / steps)) + 0.02)
    )
    for step in range(1, steps + 1):
        loss = batch_loss(model, random.sample(train, batch_size))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} train loss {loss.item():.4f}")
        if step % 100 == 0:
            dev_loss, acc = evaluate(model, dev)
            print(f"  == dev loss {dev_loss:.4f} | greedy word accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
