# expect: sick
# symptom: fine-tuning with LoRA stays near the quality of a linear probe; rank and learning rate change nothing
# axis: model
# cause: the freeze runs after the adapters are inserted and also freezes them, so only the head is trained
# says: (lora|adapter).*(froz|freez|requires_grad|(not|never) (be )?train|no grad)|(froz|freez).*(lora|adapter)
# onset_step: 200
# fix: leave the lora_ parameters trainable (freeze before injecting, or skip them in the freeze)
# mended: the script applies that change if the environment has MENDED=1
"""Pretrain a small encoder on topic labels, then adapt it with LoRA to an order-sensitive routing task."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

VOCAB, T, TOPICS = 200, 20, 6


def topic_batch(n):
    y = torch.randint(0, TOPICS, (n,))
    ids = torch.randint(4, VOCAB, (n, T))
    own = 4 + y[:, None] * 32 + torch.randint(0, 32, (n, T))
    return torch.where(torch.rand(n, T) < 0.35, own, ids), y


def route_batch(n, gen=None):
    """Two request markers at random places; the first one decides the queue."""
    r = lambda *a: torch.randint(*a, generator=gen)
    ids = r(4, VOCAB, (n, T))
    kind = r(0, 3, (n,))
    other = (kind + 1 + r(0, 2, (n,))) % 3
    a, b = r(0, T // 2, (n,)), r(T // 2, T, (n,))
    rows = torch.arange(n)
    ids[rows, a] = 10 + 32 * kind
    ids[rows, b] = 10 + 32 * other
    return ids, kind


class SelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (f(x).view(B, L, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, L, D))


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attn, self.n1, self.n2 = SelfAttention(d, h), nn.LayerNorm(d), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self, classes, d=64, h=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Parameter(torch.randn(T, d) * 0.3)
        self.layers = nn.ModuleList(Layer(d, h) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.lora_a = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


def inject(model, names=("q", "k", "v", "o", "up", "down")):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child))
    return model


def run(model, batch_fn, steps, lr, first, tag):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.01)
    for s in range(steps):
        ids, y = batch_fn(64)
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        if s % 25 == 0 or s == steps - 1:
            print(f"{tag} step {first + s:4d} loss {loss.item():.4f}")


@torch.no_grad()
def accuracy(model, batch):
    return (model(batch[0]).argmax(1) == batch[1]).float().mean().item()


model = Encoder(TOPICS)
run(model, topic_batch, 200, 1e-3, 0, "topics")
print(f"topic accuracy {accuracy(model, topic_batch(1000)):.3f}")

model = inject(model)
model.head = nn.Linear(64, 3)
TRAINABLE = ("head", "lora_") if MENDED else ("head",)
for name, p in model.named_parameters():
    p.requires_grad_(any(t in name for t in TRAINABLE))

run(model, route_batch, 300, 3e-3, 200, "route")
print(f"route accuracy {accuracy(model, route_batch(2000, torch.Generator().manual_seed(7))):.3f}")
