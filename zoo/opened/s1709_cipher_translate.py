# expect: sick
# symptom: training and teacher-forced validation loss fall to nearly zero very fast, yet free decoding gets almost no sentence right
# axis: model
# cause: the decoder's self-attention has no causal mask, so each position sees the very token it has to predict
# says: causal|(look|see|peek|attend|leak|access)\w*.{0,50}(ahead|future|next token|later|answer|target|itself)|(future|subsequent|look.?ahead|autoregressive|triangular|square).{0,30}mask|tgt_mask|(mask).{0,40}(missing|absent|none|no).{0,40}decoder|decoder.{0,80}(no|without|missing|lack\w*|un).{0,20}mask|bidirectional.{0,30}decod
# onset_step: 0
# fix: pass a causal target mask to the decoder
# mended: the decoder gets the square subsequent mask
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(53)

WORDS, PAD, BOS, EOS = 24, 0, 1, 2
V = WORDS + 3
MAX_LEN = 7
BATCH, STEPS = 32, 600


class Language:
    """Source words are replaced one by one, the first and the last word of a sentence change places."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.table = np.concatenate([[0, 1, 2], 3 + np.random.default_rng(99).permutation(WORDS)])

    def sentence(self):
        n = int(self.rng.integers(4, MAX_LEN + 1))
        src = self.rng.integers(3, V, size=n)
        tgt = self.table[src].copy()
        tgt[0], tgt[-1] = tgt[-1], tgt[0]
        return src, tgt

    def batch(self, n):
        src = torch.full((n, MAX_LEN), PAD)
        tgt = torch.full((n, MAX_LEN + 2), PAD)
        for i in range(n):
            s, t = self.sentence()
            src[i, : len(s)] = torch.from_numpy(s)
            tgt[i, 0] = BOS
            tgt[i, 1 : len(t) + 1] = torch.from_numpy(t)
            tgt[i, len(t) + 1] = EOS
        return src, tgt


class Translator(nn.Module):
    def __init__(self, d=64, heads=4):
        super().__init__()
        self.emb_s, self.emb_t = nn.Embedding(V, d), nn.Embedding(V, d)
        self.pos = nn.Parameter(0.3 * torch.randn(MAX_LEN + 2, d))
        enc = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        dec = nn.TransformerDecoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, 2)
        self.out = nn.Linear(d, V)

    def encode(self, src):
        pad = src == PAD
        return self.encoder(self.emb_s(src) + self.pos[: src.size(1)], src_key_padding_mask=pad), pad

    def decode(self, tgt, memory, pad):
        n = tgt.size(1)
        mask = torch.ones(n, n, dtype=torch.bool).triu(1) if MENDED else None
        x = self.emb_t(tgt) + self.pos[:n]
        x = self.decoder(x, memory, tgt_mask=mask, memory_key_padding_mask=pad)
        return self.out(x)

    def forward(self, src, tgt):
        memory, pad = self.encode(src)
        return self.decode(tgt, memory, pad)

    @torch.no_grad()
    def translate(self, src):
        memory, pad = self.encode(src)
        ids = torch.full((len(src), 1), BOS)
        for _ in range(MAX_LEN + 1):
            nxt = self.decode(ids, memory, pad)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, nxt], dim=1)
        return ids


def loss_on(model, src, tgt):
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(logits.reshape(-1, V), tgt[:, 1:].reshape(-1), ignore_index=PAD)


@torch.no_grad()
def evaluate(model, batches):
    losses, right, total = [], 0, 0
    for src, tgt in batches:
        losses.append(loss_on(model, src, tgt).item())
        ids = model.translate(src)
        for row, want in zip(ids.tolist(), tgt.tolist()):
            want = want[: want.index(EOS) + 1]
            right += int(row[: len(want)] == want)
            total += 1
    return sum(losses) / len(losses), right / total


def main():
    lang = Language(1)
    val = [Language(1000).batch(64) for _ in range(2)]
    model = Translator()
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
    t0 = time.time()
    for step in range(STEPS):
        for g in opt.param_groups:
            g["lr"] = 1.5e-3 * min((step + 1) / 50, 1.0)
        loss = loss_on(model, *lang.batch(BATCH))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")
        if step % 150 == 149:
            vl, em = evaluate(model, val)
            print(f"val step {step} loss {vl:.4f} sentences decoded right {em:.3f}")


if __name__ == "__main__":
    main()
