# expect: sick
# symptom: the mixture-of-experts language model trains without any alarm and the experts are evenly used, but the loss levels off far above what the same model should reach
# axis: model
# cause: tokens are sorted by expert for the dispatch and the experts' outputs are not put back into the original token order, so each position receives another token's expert output
# says: (un-?permut\w*|un-?sort\w*|un-?shuffl\w*|permut\w*|sort\w*|scatter\w*|(token|original|wrong) order|re-?order\w*|argsort|index_copy|inverse)|(other|another|wrong|different|mix\w* up)[^.]{0,60}(token|position)s?|(leak\w*|mix\w*)[^.]{0,60}(across|between|other|future)[^.]{0,40}(token|position|sequence|sample|example)s?
# onset_step: 0
# fix: scatter the sorted outputs back: out[order] = ys
# mended: the sorted expert outputs are scattered back with index_copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
VOCAB, CTX, LANGS = 48, 24, 12


class Corpus:
    """Twelve little languages; each has its own rule for the next symbol."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.integers(0, VOCAB - LANGS, size=(LANGS, VOCAB - LANGS))
        self.rng = np.random.default_rng(seed + 1)

    def sample(self, n, rng=None):
        rng = rng or self.rng
        lang = rng.integers(0, LANGS, n)
        seq = np.zeros((n, CTX + 1), dtype=np.int64)
        seq[:, 0] = VOCAB - LANGS + lang
        seq[:, 1] = rng.integers(0, VOCAB - LANGS, n)
        for t in range(2, CTX + 1):
            nxt = self.table[lang, seq[:, t - 1]]
            noise = rng.random(n) < 0.15
            nxt[noise] = rng.integers(0, VOCAB - LANGS, noise.sum())
            seq[:, t] = nxt
        seq = torch.tensor(seq)
        return seq[:, :-1], seq[:, 1:]


class SwitchFFN(nn.Module):
    def __init__(self, d, hidden, experts=8):
        super().__init__()
        self.router = nn.Linear(d, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, d, hidden) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, d) * hidden**-0.5)
        self.experts = experts
        self.stats = None

    def forward(self, x):
        b, t, d = x.shape
        x = x.reshape(-1, d)
        probs = self.router(x).softmax(-1)
        gate, idx = probs.max(-1)
        order = idx.argsort()
        counts = torch.bincount(idx, minlength=self.experts)
        ys = []
        for e, xs in enumerate(x[order].split(counts.tolist())):
            ys.append(F.gelu(xs @ self.w1[e]) @ self.w2[e])
        out = torch.cat(ys) * gate[order, None]
        if MENDED:
            out = torch.zeros_like(x).index_copy(0, order, out)

        frac = counts.float() / len(x)
        aux = self.experts * (frac * probs.mean(0)).sum()
        self.stats = (frac.max().item(), frac.min().item())
        return out.view(b, t, d), aux


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ffn = SwitchFFN(d, 2 * d)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        y, aux = self.ffn(self.n2(x))
        return x + y, aux


class MoELM(nn.Module):
    def __init__(self, d=48, depth=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        aux = 0.0
        for blk in self.blocks:
            x, a = blk(x)
            aux = aux + a
        return self.head(self.norm(x)), aux / len(self.blocks)


def main():
    torch.manual_seed(2)
    corpus = Corpus()
    val = corpus.sample(256, np.random.default_rng(99))
    model = MoELM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    steps, coef = 500, 0.02
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        ids, tgt = corpus.sample(32)
        logits, aux = model(ids)
        lm = F.cross_entropy(logits.flatten(0, 1), tgt.flatten())
        loss = lm + coef * aux
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(f"step {step:4d} lm {lm.item():.4f} balance {aux.item():.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        logits, _ = model(val[0])
        print(f"val lm {F.cross_entropy(logits.flatten(0, 1), val[1].flatten()).item():.4f}")
        for i, blk in enumerate(model.blocks):
            print(f"layer {i}: busiest expert {blk.ffn.stats[0]:.2f} of tokens, idlest {blk.ffn.stats[1]:.2f}")


if __name__ == "__main__":
    main()
