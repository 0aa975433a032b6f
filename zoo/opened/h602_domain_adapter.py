# expect: healthy
# symptom: nearly all parameters never move, and the first adapter matrices get a gradient of exactly zero in the first step (resembles frozen parameters or a detached graph)
# axis: none
# cause: healthy: low-rank adapters on a frozen pretrained language model; B starts at zero, hence A has no gradient in step one, and only the adapters are meant to train
# says: none
# onset_step: none
# fix: none
# mended: none
import logging
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("lora")
torch.set_num_threads(1)
torch.manual_seed(30)
random.seed(30)

ACTORS = ["the cat", "the dog", "a bird", "my friend", "the old man", "a child"]
VERBS = ["sees", "likes", "follows", "finds"]
FORMAL = {"sees": "observes", "likes": "favours", "follows": "pursues", "finds": "locates"}


def line(formal):
    v = random.choice(VERBS)
    a, b = random.sample(ACTORS, 2)
    return f"{a} {FORMAL[v] if formal else v} {b}; " if not formal else f"{a} {FORMAL[v]} {b} indeed; "


plain = "".join(line(False) for _ in range(3000))
legal = "".join(line(True) for _ in range(3000))
chars = sorted(set(plain + legal))
stoi = {c: i for i, c in enumerate(chars)}
plain, legal = (torch.tensor([stoi[c] for c in t]) for t in (plain, legal))
BLOCK = 48


def get_batch(data, n=24):
    ix = torch.randint(len(data) - BLOCK - 1, (n,))
    w = torch.stack([data[i : i + BLOCK + 1] for i in ix])
    return w[:, :-1], w[:, 1:]


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, 4)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(chars), d), nn.Embedding(BLOCK, d)
        self.blocks = nn.Sequential(Block(d), Block(d))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, len(chars))

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tok(x) + self.pos(torch.arange(x.size(1))))))


class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.A), self.B)


def add_lora(model):
    for p in model.parameters():
        p.requires_grad = False
    for block in model.blocks:
        for name in ("q", "k", "v", "o"):
            setattr(block.attn, name, LoRALinear(getattr(block.attn, name)))
        block.up, block.down = LoRALinear(block.up), LoRALinear(block.down)
    return [p for p in model.parameters() if p.requires_grad]


def nll(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def validate(model, data):
    return sum(nll(model, *get_batch(data)).item() for _ in range(8)) / 8


def train(model, params, data, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for step in range(1, steps + 1):
        loss = nll(model, *get_batch(data))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        if step % 50 == 0:
            log.info("%s step %d loss %.4f", tag, step, loss.item())


model = LM()
train(model, list(model.parameters()), plain, 250, 3e-3, "pretrain")
log.info("before adapters: plain %.4f formal %.4f", validate(model, plain), validate(model, legal))
params = add_lora(model)
log.info("trainable %d of %d", sum(p.numel() for p in params), sum(p.numel() for p in model.parameters()))
train(model, params, legal, 300, 5e-3, "adapter")
log.info("after adapters: formal %.4f", validate(model, legal))
