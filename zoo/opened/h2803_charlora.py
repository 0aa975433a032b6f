# expect: healthy
# symptom: nearly all parameters are frozen and half of the adapter matrices get a zero gradient in the first step, resembles detached or forgotten parameters
# axis: model
"""Adapt a small character transformer to a new dialect with low-rank adapters.

Phase one trains the base model on source texts; phase two freezes it and trains
only rank-4 adapters on the attention and feed-forward projections.
"""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

CONTEXT, BATCH = 40, 24


class Dialect:
    """A second-order Markov source over 27 symbols with a word-like structure."""

    def __init__(self, seed, n_words=120):
        g = torch.Generator().manual_seed(seed)
        self.words = []
        for _ in range(n_words):
            n = int(torch.randint(2, 7, (1,), generator=g))
            self.words.append(torch.randint(1, 27, (n,), generator=g).tolist())
        self.weights = 1.0 / torch.arange(1, n_words + 1).float()

    def text(self, n_chars, seed):
        g = torch.Generator().manual_seed(seed)
        out = []
        picks = torch.multinomial(self.weights, n_chars // 2, replacement=True, generator=g)
        for w in picks.tolist():
            out += self.words[w] + [0]
            if len(out) >= n_chars:
                break
        return torch.tensor(out[:n_chars])

    def shifted(self, shift):
        other = Dialect.__new__(Dialect)
        other.words = [[(c - 1 + shift) % 26 + 1 if c % 2 else c for c in w] for w in self.words]
        other.weights = self.weights.flip(0) + 0.02
        return other


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank=4, alpha=16.0):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self, d=48, heads=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(27, d), nn.Embedding(CONTEXT, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 27)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def add_adapters(model):
    for p in model.parameters():
        p.requires_grad_(False)
    for layer in model.layers:
        for name in ("qkv", "proj", "fc1", "fc2"):
            setattr(layer, name, LoRALinear(getattr(layer, name)))
    model.head = LoRALinear(model.head)
    return [p for p in model.parameters() if p.requires_grad]


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def fit(model, params, text, heldout, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    t0 = time.time()
    for step in range(1, steps + 1):
        for group in opt.param_groups:
            group["lr"] = lr * min(1.0, step / 20) * (0.1 + 0.9 * (1 - step / steps))
        at = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,))
        loss = lm_loss(model, torch.stack([text[i : i + CONTEXT + 1] for i in at]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            with torch.no_grad():
                val = lm_loss(model, heldout[: 60 * (CONTEXT + 1)].view(60, -1))
            print(f"{tag} {step:4d} train {loss.item():.4f} heldout {val.item():.4f} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    torch.manual_seed(31)
    source = Dialect(1)
    target = source.shifted(9)
    model = CharLM()
    fit(model, model.parameters(), source.text(60000, 1), source.text(4000, 2), 300, 3e-3, "base")
    adapters = add_adapters(model)
    total = sum(p.numel() for p in model.parameters())
    print(f"adapting {sum(p.numel() for p in adapters)} of {total} parameters")
    fit(model, adapters, target.text(60000, 3), target.text(4000, 4), 350, 4e-3, "adapt")
