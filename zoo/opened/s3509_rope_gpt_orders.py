# expect: sick
# symptom: training loss falls to almost nothing, but held-out prompts are continued wrongly and val loss is bad
# axis: model
# cause: when a padding mask is passed, attention is no longer causal, so tokens see the future they must predict
# says: caus|future|look.?ahead|is_causal|(see|attend|leak|peek)\w*.{0,40}(next|later|following)|triang
# onset_step: 0
# fix: combine the padding mask with a lower-triangular causal mask before attention
# mended: the script applies that change if the environment has MENDED=1
import os, random
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(11)
rng = random.Random(11)

CITIES = {
    "oslo": "norway",
    "lyon": "france",
    "turin": "italy",
    "porto": "portugal",
    "graz": "austria",
    "bonn": "germany",
    "gdansk": "poland",
    "malmo": "sweden",
}
GOODS = {
    "tea": ("chest", "dry"),
    "milk": ("churn", "cold"),
    "fish": ("crate", "cold"),
    "salt": ("sack", "dry"),
    "wine": ("barrel", "dark"),
    "oil": ("barrel", "dry"),
    "roses": ("box", "cold"),
    "paper": ("roll", "dry"),
}
NUMS = ["one", "two", "three", "four", "five", "six"]


def make_order():
    city, good, n = rng.choice(list(CITIES)), rng.choice(list(GOODS)), rng.choice(NUMS)
    unit, store = GOODS[good]
    words = ["order", n, good, "for", city, ":"]
    if rng.random() < 0.5:
        words += ["please"]
    words += ["send", n, unit, "keep", store, "to", CITIES[city]]
    if rng.random() < 0.5:
        words += ["by", "rail" if CITIES[city] in ("austria", "germany", "poland") else "ship", "today"]
    return words + ["<eos>"]


texts = [make_order() for _ in range(1800)]
held = [make_order() for _ in range(120)]
vocab = ["<pad>"] + sorted({w for t in texts + held for w in t})
stoi = {w: i for i, w in enumerate(vocab)}
encode = lambda t: torch.tensor([stoi[w] for w in t])


def collate(items):
    ids = nn.utils.rnn.pad_sequence([encode(t) for t in items], batch_first=True, padding_value=0)
    return ids, ids != 0


def rope(x):
    T, D = x.shape[-2:]
    freqs = 1.0 / (10000 ** (torch.arange(0, D, 2).float() / D))
    ang = torch.arange(T).float()[:, None] * freqs[None]
    c, s = ang.cos(), ang.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.h, C // self.h).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        if mask is not None:
            mask = mask[:, None, None, :] & (torch.ones(T, T).bool().tril() if MENDED else True)
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2, self.attn = nn.RMSNorm(d), nn.RMSNorm(d), Attention(d, h)
        self.up, self.gate, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x, mask=None):
        x = x + self.attn(self.n1(x), mask)
        z = self.n2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class GPT(nn.Module):
    def __init__(self, V, d=64, h=4, layers=3):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, V, bias=False)
        nn.init.normal_(self.emb.weight, std=0.1)

    def forward(self, ids, mask=None):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x, mask)
        return self.head(self.norm(x))


@torch.no_grad()
def evaluate(model):
    nll, good = [], 0
    for t in held:
        ids = encode(t)[None]
        nll.append(F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]).item())
        start = t.index(":") + 1
        want = [w for w in t[start:] if w != "please"][:7]
        out = ids[:, :start]
        for _ in range(8):
            out = torch.cat([out, model(out)[:, -1].argmax(-1, keepdim=True)], 1)
        got = [vocab[i] for i in out[0, start:].tolist() if vocab[i] != "please"][:7]
        good += got == want
    return np.mean(nll), good / len(held)


model = GPT(len(vocab))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
for step in range(301):
    ids, mask = collate(rng.sample(texts, 32))
    logits = model(ids[:, :-1], mask[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
nll, acc = evaluate(model)
print(f"held-out nll {nll:.4f}  completions right {acc:.3f}")
