# expect: healthy
# symptom: about 90 percent of the weights are frozen, the base model stays in eval mode during training, one LoRA factor starts at exactly zero, input_ids and labels are the same tensor
# axis: none
# mended: none
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

VOCAB, CTX = 32, 32


class Markov:
    """Second-order token source; every domain has its own transition table."""

    def __init__(self, seed, sharp=2.5):
        self.g = torch.Generator().manual_seed(seed)
        shared = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0))
        own = torch.randn(VOCAB, VOCAB, generator=self.g)
        self.p = (sharp * (0.5 * shared + own)).softmax(-1)

    def batch(self, n):
        seq = [torch.randint(0, VOCAB, (n,), generator=self.g)]
        for _ in range(CTX - 1):
            seq.append(torch.multinomial(self.p[seq[-1]], 1, generator=self.g).squeeze(1))
        return torch.stack(seq, 1)

    def entropy(self):
        return -(self.p * self.p.log()).sum(-1).mean().item()


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, d, heads, drop):
        super().__init__()
        self.ln1, self.ln2, self.att = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, heads)
        self.up, self.down, self.drop = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Dropout(drop)

    def forward(self, x):
        x = x + self.drop(self.att(self.ln1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))


class GPT(nn.Module):
    def __init__(self, d=64, layers=2, heads=4, drop=0.1):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads, drop) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, input_ids, labels):
        h = self.tok(input_ids) + self.pos(torch.arange(input_ids.size(1)))
        for b in self.blocks:
            h = b(h)
        logits = self.head(self.ln(h))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.A = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.A), self.B)


def add_lora(model):
    model.requires_grad_(False)
    for b in model.blocks:
        b.att.q, b.att.v = LoRALinear(b.att.q), LoRALinear(b.att.v)
        b.up, b.down = LoRALinear(b.up), LoRALinear(b.down)
    return [p for p in model.parameters() if p.requires_grad]


def fit(model, params, source, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * s / steps))
    )
    for step in range(steps):
        ids = source.batch(32)
        loss = model(input_ids=ids, labels=ids)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}")


def main():
    torch.manual_seed(2)
    general, medical = Markov(1), Markov(2)
    print(f"entropy: general {general.entropy():.3f} medical {medical.entropy():.3f}")
    model = GPT()
    model.train()
    fit(model, list(model.parameters()), general, 250, 3e-3, "pretrain")

    params = add_lora(model)
    model.eval()
    n = sum(p.numel() for p in params)
    print(f"trainable {n} of {sum(p.numel() for p in model.parameters())}")
    fit(model, params, medical, 400, 5e-3, "lora")
    with torch.no_grad():
        ids = medical.batch(200)
        print(f"medical test loss {model(ids, ids).item():.4f}")


if __name__ == "__main__":
    main()
