# expect: sick
# symptom: the teacher-forced loss falls to almost zero very fast, on training and validation data, yet greedy decoding gives nonsense (exact match about 0)
# axis: model
# cause: the decoder's self-attention has no causal mask, so it sees the token it has to predict in its own input
# says: causal|(look.?ahead|subsequent|tgt_?|target|decoder)[^.]{0,30}mask|(see|peek|attend|look|leak)\w*[^.]{0,60}(future|next token|answer|target|ahead)|(future|next|target)[^.]{0,30}(leak|visible|seen)
# onset_step: 0
# fix: give the decoder a causal tgt_mask
# mended: MENDED=1 passes the causal mask to the decoder
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
CHARS = ["<pad>", "<s>", "</s>"] + list("abcdefghijklmnopqrstuvwxyz0123456789-/., ")
IDX = {c: i for i, c in enumerate(CHARS)}
PAD, BOS, EOS = 0, 1, 2
MAX_SRC, MAX_TGT = 24, 12


def sample_date(rng):
    y, m, d = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
    name = MONTHS[m - 1]
    src = rng.choice(
        [
            f"{d} {name} {y}",
            f"{name} {d}, {y}",
            f"{d:02d}/{m:02d}/{y}",
            f"{name[:3]} {d} {y}",
            f"{y}, {d} {name[:3]}.",
        ]
    )
    return src, f"{y}-{m:02d}-{d:02d}"


def encode(s, size, bos=False):
    ids = ([BOS] if bos else []) + [IDX[c] for c in s] + [EOS]
    return ids + [PAD] * (size - len(ids))


def make_batch(rng, n):
    pairs = [sample_date(rng) for _ in range(n)]
    src = torch.tensor([encode(a, MAX_SRC) for a, _ in pairs])
    tgt = torch.tensor([encode(b, MAX_TGT, bos=True) for _, b in pairs])
    return src, tgt, pairs


class DateTranslator(nn.Module):
    def __init__(self, d=64, heads=4):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), d, padding_idx=PAD)
        self.pos_s = nn.Parameter(torch.randn(MAX_SRC, d) * 0.1)
        self.pos_t = nn.Parameter(torch.randn(MAX_TGT, d) * 0.1)
        enc = nn.TransformerEncoderLayer(d, heads, 2 * d, 0.0, batch_first=True, norm_first=True)
        dec = nn.TransformerDecoderLayer(d, heads, 2 * d, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1, nn.LayerNorm(d), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, 1, nn.LayerNorm(d))
        self.out = nn.Linear(d, len(CHARS))

    def encode(self, src):
        pad = src == PAD
        return self.encoder(self.emb(src) + self.pos_s, src_key_padding_mask=pad), pad

    def decode(self, tgt, memory, pad):
        T = tgt.size(1)
        mask = None
        if MENDED:
            mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        h = self.decoder(self.emb(tgt) + self.pos_t[:T], memory, tgt_mask=mask, memory_key_padding_mask=pad)
        return self.out(h)

    def forward(self, src, tgt):
        memory, pad = self.encode(src)
        return self.decode(tgt, memory, pad)

    @torch.no_grad()
    def translate(self, src):
        memory, pad = self.encode(src)
        ys = torch.full((src.size(0), 1), BOS)
        for _ in range(MAX_TGT - 1):
            nxt = self.decode(ys, memory, pad)[:, -1].argmax(-1, keepdim=True)
            ys = torch.cat([ys, nxt], 1)
        return ys


def to_text(ids):
    s = ""
    for i in ids[1:]:
        if i == EOS:
            break
        s += CHARS[i] if i > EOS else "?"
    return s


def seq_loss(model, src, tgt):
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)


def report(model, rng):
    model.eval()
    src, tgt, pairs = make_batch(rng, 60)
    with torch.no_grad():
        vl = seq_loss(model, src, tgt).item()
    hyp = [to_text(r) for r in model.translate(src).tolist()]
    em = sum(h == b for h, (_, b) in zip(hyp, pairs)) / len(pairs)
    print(f"   valid loss {vl:.4f} exact match {em:.2f}   e.g. {pairs[0][0]!r} -> {hyp[0]!r}")
    model.train()


def main():
    torch.manual_seed(5)
    rng, val_rng = random.Random(1), random.Random(2)
    model = DateTranslator()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    for step in range(600):
        src, tgt, _ = make_batch(rng, 32)
        loss = seq_loss(model, src, tgt)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 150 == 149:
            report(model, val_rng)


if __name__ == "__main__":
    main()
