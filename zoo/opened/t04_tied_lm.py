# expect: sick
# symptom: the first loss is more than ten times ln(512) = 6.24 and takes far more than 100 steps to come down to where a model that knows nothing would begin
# axis: model
# cause: the embedding is tied to the output head and keeps nn.Embedding's N(0, 1) default, so the logits are tens in size (each token strongly predicts itself) and the first loss is many times ln(vocabulary)
# says: (init|embedding|tied|tying|weight).{0,160}(scale|too large|large|std|variance|N\(0|0\.02|normal|logits?)|(logits?|head|output).{0,80}(too large|scale|huge|large)
# onset_step: 0
# fix: initialise the tied embedding with std 0.02 (or d**-0.5), or scale the logits
# mended: embeddings are initialised with std 0.02
"""Small decoder-only language model on a synthetic corpus from a sparse Markov chain."""

import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

VOCAB, CTX, DIM, HEADS, LAYERS = 512, 48, 128, 4, 2
BATCH, STEPS, LR = 12, 300, 3e-4


def corpus(n, seed=0):
    rng = np.random.default_rng(seed)
    succ = rng.integers(0, VOCAB, (VOCAB, 4))
    p = np.array([0.6, 0.25, 0.1, 0.05]).cumsum()
    pick = np.searchsorted(p, rng.random(n)).clip(max=3)
    out = np.empty(n, dtype=np.int64)
    t = 0
    for i in range(n):
        t = succ[t, pick[i]] if pick[i] < 3 or i % 7 else rng.integers(0, VOCAB)
        out[i] = t
    return torch.from_numpy(out)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, DIM))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.att = Attention()
        self.ff = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(CTX, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)
        for name, p in self.named_parameters():
            if p.dim() == 2 and (MENDED or not name.startswith("w")):
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def main():
    torch.manual_seed(1234)
    data = corpus(60_000)
    model = TinyLM()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    print(f"params {sum(p.numel() for p in model.parameters()):,}  ln(vocab) {math.log(VOCAB):.2f}")
    for step in range(STEPS):
        for g in opt.param_groups:
            g["lr"] = LR * min(1.0, (step + 1) / 20)
        at = torch.randint(0, len(data) - CTX - 1, (BATCH,))
        seq = torch.stack([data[i : i + CTX + 1] for i in at])
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:3d} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
