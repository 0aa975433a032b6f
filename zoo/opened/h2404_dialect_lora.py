# expect: healthy
# symptom: the loss jumps at step 301 and most parameters get no gradient from then on, as if the optimizer had lost them
# axis: model
"""Character transformer: base training on one language, then low-rank adapters on a
dialect with the base frozen (adapter B starts at zero)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
g = torch.Generator().manual_seed(31)
torch.manual_seed(31)

VOCAB, CTX, DIM, HEADS, LAYERS = 26, 48, 64, 4, 2
BASE_STEPS, TUNE_STEPS, BATCH = 300, 300, 32


def lexicon(n):
    return [torch.randint(1, VOCAB, (int(torch.randint(3, 7, (1,), generator=g)),), generator=g) for _ in range(n)]


def corpus(words, n_chars):
    weights = 1.0 / torch.arange(1, len(words) + 1).float()
    pieces, total = [], 0
    space = torch.zeros(1, dtype=torch.long)
    while total < n_chars:
        for k in torch.multinomial(weights, 500, replacement=True, generator=g).tolist():
            pieces += [words[k], space]
            total += len(words[k]) + 1
    return torch.cat(pieces)[:n_chars]


def dialect(words):
    """Vowel shift: four letters change cyclically, and a third of the words are new."""
    shift = torch.arange(VOCAB)
    shift[torch.tensor([1, 5, 9, 15])] = torch.tensor([5, 9, 15, 1])
    fresh = lexicon(len(words) // 3)
    return [fresh[i // 3] if i % 3 == 0 and i // 3 < len(fresh) else shift[w] for i, w in enumerate(words)]


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def add_adapters(self):
        self.requires_grad_(False)
        for layer in self.layers:
            for name in ("qkv", "proj", "up", "down"):
                setattr(layer, name, LoRALinear(getattr(layer, name)))
        self.head = LoRALinear(self.head)
        return [p for p in self.parameters() if p.requires_grad]


def lm_loss(model, text):
    i = torch.randint(0, len(text) - CTX - 1, (BATCH,), generator=g)
    block = torch.stack([text[j : j + CTX + 1] for j in i])
    return F.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())


def fit(model, params, lr, text, steps, first, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, lr, total_steps=steps, pct_start=0.1)
    for step in range(first, first + steps):
        loss = lm_loss(model, text)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step == first or step % 30 == 0:
            print(f"{tag} step {step:4d}: {loss.item():.4f} nats/char")


def main():
    words = lexicon(150)
    text_a, text_b = corpus(words, 60000), corpus(dialect(words), 60000)
    model = CharLM()
    fit(model, model.parameters(), 3e-3, text_a, BASE_STEPS, 1, "base   ")
    params = model.add_adapters()
    n, total = sum(p.numel() for p in params), sum(p.numel() for p in model.parameters())
    print(f"adapters: {n} of {total} parameters are trained")
    fit(model, params, 5e-3, text_b, TUNE_STEPS, BASE_STEPS + 1, "dialect")
    with torch.no_grad():
        print(f"after tuning, dialect: {sum(lm_loss(model, text_b).item() for _ in range(10)) / 10:.4f}")


if __name__ == "__main__":
    main()
