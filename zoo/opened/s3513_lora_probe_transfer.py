# expect: sick
# symptom: adapter fine-tuning runs cleanly, but accuracy stays little above that of a plain linear probe
# axis: model
# cause: reentrant gradient checkpointing gets a frozen embedding output, so the LoRA adapters get no gradients
# says: checkpoint|reentrant|require_?s?.?grad|(adapter|lora)\w*.{0,80}(no|never|not|without|zero|frozen|miss)
# onset_step: 0
# fix: make the embedding output require grad before the checkpointed blocks (or use_reentrant=False)
# mended: the script applies that change if the environment has MENDED=1
import os, math, random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(8)
rnd = random.Random(8)
AGENTS = ["nurse", "pilot", "baker", "judge", "miner", "tailor", "farmer", "singer"]
VERBS = ["helped", "paid", "called", "taught", "fed", "praised"]
PLACES = ["town", "church", "market", "harbor", "school"]
WORDS = ["<pad>", "<s>", "the", "in", "by", "was", "there", "too", "."] + AGENTS + VERBS + PLACES
ID = {w: i for i, w in enumerate(WORDS)}


def sentence():
    a, b = rnd.sample(AGENTS, 2)
    v, p = rnd.choice(VERBS), rnd.choice(PLACES)
    if rnd.random() < 0.5:
        return v, p, ["<s>", "in", "the", p, "the", a, v, "the", b, "there", "too", "."]
    return v, p, ["<s>", "in", "the", p, "the", b, "was", v, "by", "the", a, "."]


def ids(words):
    return torch.tensor([ID[w] for w in words])


def lm_batch(n):
    return torch.stack([ids(sentence()[2]) for _ in range(n)])


def fit_batch(n):
    """Label: does the kind of deed (giving / speaking) go with the kind of place?"""
    xs, ys = [], []
    for _ in range(n):
        v, p, s = sentence()
        xs.append(ids(s))
        ys.append(int((VERBS.index(v) < 3) == (PLACES.index(p) < 3)))
    return torch.stack(xs), torch.tensor(ys)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.fc, self.proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        B, T, C = x.shape
        h = self.ln1(x)
        q, k, v = (f(h).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.o(y)
        return x + self.proj(F.gelu(self.fc(self.ln2(x))))


class Backbone(nn.Module):
    def __init__(self, vocab, d=64, layers=2, heads=4, ctx=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.checkpointing = False

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        if self.checkpointing and self.training:
            h = h.requires_grad_() if MENDED else h
            for b in self.blocks:
                h = checkpoint(b, h, use_reentrant=True)
        else:
            for b in self.blocks:
                h = b(h)
        return self.ln(h)


class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.A), self.B) * self.scale


def add_lora(backbone, names=("q", "k", "v", "o", "fc", "proj")):
    backbone.requires_grad_(False)
    for block in backbone.blocks:
        for n in names:
            setattr(block, n, LoRALinear(getattr(block, n)))


backbone = Backbone(len(WORDS))
lm_head = nn.Linear(64, len(WORDS), bias=False)
opt = torch.optim.AdamW([*backbone.parameters(), *lm_head.parameters()], lr=2e-3)
for it in range(100):
    x = lm_batch(32)
    loss = F.cross_entropy(lm_head(backbone(x[:, :-1])).flatten(0, 1), x[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 30 == 0:
        print(f"[base] {it} lm loss {loss.item():.3f}", flush=True)

add_lora(backbone)
backbone.checkpointing = True
head = nn.Linear(64, 2)
trainable = [p for p in [*backbone.parameters(), *head.parameters()] if p.requires_grad]
print("trainable parameters:", sum(p.numel() for p in trainable))
opt = torch.optim.AdamW(trainable, lr=4e-3, weight_decay=0.0)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=300, eta_min=1e-4)
backbone.train()
for step in range(300):
    x, y = fit_batch(24)
    loss = F.cross_entropy(head(backbone(x).mean(1)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 30 == 0:
        print(f"[adapt] {step} loss {loss.item():.4f}", flush=True)

backbone.eval()
with torch.no_grad():
    x, y = fit_batch(600)
    out = head(backbone(x).mean(1))
print(f"test loss {F.cross_entropy(out, y).item():.4f} accuracy {(out.argmax(-1) == y).float().mean().item():.3f}")
