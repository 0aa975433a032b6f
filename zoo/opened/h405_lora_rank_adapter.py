# expect: healthy
# symptom: resembles frozen weights / an optimizer that lacks parameters: only a few percent of the weights are trainable and half of the adapters get zero gradient on the first step
# axis: model
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(41)
torch.set_num_threads(1)

VOCAB, CTX, DIM, HEADS, BATCH = 32, 24, 64, 4, 24
PRETRAIN, ADAPT = 250, 300


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=16.0):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 3 * DIM), nn.Linear(3 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.proj(a)
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class TinyGPT(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))


RULE_A, RULE_B = torch.randperm(VOCAB), torch.randperm(VOCAB)


def make_batch(rule, n):
    ids = torch.randint(0, VOCAB, (n, CTX + 1))
    for t in range(1, CTX + 1):
        keep = torch.rand(n) < 0.85
        ids[keep, t] = rule[ids[keep, t - 1]]
    return ids[:, :-1], ids[:, 1:]


def fit(model, params, rule, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    for step in range(1, steps + 1):
        x, y = make_batch(rule, BATCH)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        if step == 1 or step % 50 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}")


def main():
    t0 = time.time()
    model = TinyGPT()
    fit(model, list(model.parameters()), RULE_A, PRETRAIN, 3e-3, "base")

    for p in model.parameters():
        p.requires_grad_(False)
    for b in model.blocks:
        b.qkv, b.proj, b.fc1, b.fc2 = (LoRALinear(m) for m in (b.qkv, b.proj, b.fc1, b.fc2))
    adapters = [p for p in model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in model.parameters())
    print(f"trainable {sum(p.numel() for p in adapters)} of {total}")
    fit(model, adapters, RULE_B, ADAPT, 1e-2, "lora")

    with torch.no_grad():
        x, y = make_batch(RULE_B, 256)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    print(f"held-out loss {loss:.4f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
