# expect: healthy
# symptom: attention without any causal mask and without a label shift, six of seven labels are -100, a tenth of the "masked" tokens is left in sight
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(91)

WORDS, PAD, MASK, CLS = 40, 0, 1, 2
V = WORDS + 3
LEN, D, HEADS, LAYERS = 20, 64, 4, 2
BATCH, STEPS = 32, 600


class Grammar:
    """Sentences of clauses; the opening word of a clause fixes the two that follow it."""

    def __init__(self, seed):
        fixed = np.random.default_rng(5)
        self.second = 3 + fixed.permutation(WORDS)
        self.third = 3 + fixed.permutation(WORDS)
        self.rng = np.random.default_rng(seed)

    def batch(self, n):
        ids = np.full((n, LEN), PAD, dtype=np.int64)
        ids[:, 0] = CLS
        for i in range(n):
            clauses = self.rng.integers(4, 7)
            pos = 1
            for _ in range(clauses):
                w = int(self.rng.integers(0, WORDS))
                ids[i, pos : pos + 3] = [3 + w, self.second[w], self.third[w]]
                pos += 3
        return torch.from_numpy(ids)


def mask_tokens(ids, gen):
    """80 % mask sign, 10 % some other word, 10 % unchanged; the rest of the labels is ignored."""
    labels = ids.clone()
    eligible = (ids != PAD) & (ids != CLS)
    chosen = (torch.rand(ids.shape, generator=gen) < 0.15) & eligible
    chosen[:, 1] |= ~chosen.any(dim=1)
    labels[~chosen] = -100
    roll = torch.rand(ids.shape, generator=gen)
    inputs = ids.clone()
    inputs[chosen & (roll < 0.8)] = MASK
    swap = chosen & (roll >= 0.8) & (roll < 0.9)
    inputs[swap] = torch.randint(3, V, (int(swap.sum()),), generator=gen)
    return inputs, labels


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.n2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D, padding_idx=PAD)
        self.pos = nn.Embedding(LEN, D)
        nn.init.normal_(self.tok.weight, std=0.3)
        nn.init.normal_(self.pos.weight, std=0.3)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, ids, labels=None):
        keep = (ids != PAD)[:, None, None, :]
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for layer in self.layers:
            x = layer(x, keep)
        x = self.norm(x)
        if labels is None:
            return x
        picked = labels != -100  # the wide output layer is only run where there is a label
        logits = x[picked] @ self.tok.weight.T + self.bias
        return F.cross_entropy(logits, labels[picked]), logits.argmax(-1) == labels[picked]


def main():
    text, val_text = Grammar(1), Grammar(2)
    gen = torch.Generator().manual_seed(4)
    val = [mask_tokens(val_text.batch(64), gen) for _ in range(3)]
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01, betas=(0.9, 0.98))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 60, max(0.05, 1 - (s - 60) / (STEPS - 60))))
    t0 = time.time()
    for step in range(STEPS):
        loss, hit = model(*mask_tokens(text.batch(BATCH), gen))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(
                f"step {step} mlm loss {loss.item():.4f} acc {hit.float().mean().item():.3f} t {time.time() - t0:.1f}"
            )
        if step % 150 == 149:
            with torch.no_grad():
                outs = [model(a, b) for a, b in val]
            print(
                f"val loss {sum(o[0].item() for o in outs) / len(outs):.4f} "
                f"acc {torch.cat([o[1] for o in outs]).float().mean().item():.3f}"
            )


if __name__ == "__main__":
    main()
