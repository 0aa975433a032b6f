# expect: sick
# symptom: pretraining is fine, but in the fine-tuning on the new domain the loss falls a little at first and then hardly moves any more, whatever the number of steps
# axis: precision
# cause: the fine-tuned weights themselves are bfloat16 without an fp32 master copy; with the small learning rate most AdamW updates are below half a bf16 ulp of the weight and round to zero
# says: (bf16|bfloat16|half.?precision|(low|reduced).?precision).{0,80}(weight|param|update|master|round|lost|swallow|optimi)|updates?.{0,80}(round|lost|swallow|underflow|ulp)|master.{0,15}(weight|copy|param)|stochastic rounding
# onset_step: 200
# fix: keep the weights in fp32 (master weights) and use bf16 only through autocast; or stochastic rounding / Kahan summation
# mended: the weights stay in fp32 and the forward runs under bf16 autocast
"""Character GPT: pretraining on one synthetic language, then fine-tuning in bf16 on a second one."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

VOCAB, BLOCK, BATCH = 32, 32, 12
PRE_STEPS, FT_STEPS = 200, 240


class Language:
    """First-order Markov chain with few likely successors per symbol."""

    def __init__(self, seed, base=None, changed=1.0):
        g = torch.Generator().manual_seed(seed)
        logits = 2.6 * torch.randn(VOCAB, VOCAB, generator=g)
        if base is not None:
            keep = torch.rand(VOCAB, 1, generator=g) > changed
            logits = torch.where(keep, base.logits, logits)
        self.logits, self.gen = logits, g

    def sample(self, n, length):
        x = torch.randint(0, VOCAB, (n, 1), generator=self.gen)
        probs = self.logits.softmax(-1)
        for _ in range(length):
            nxt = torch.multinomial(probs[x[:, -1]], 1, generator=self.gen)
            x = torch.cat([x, nxt], dim=1)
        return x


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(BLOCK, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def lm_loss(model, tokens, use_autocast=False):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_autocast):
        logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.float().reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))


def run(model, data, steps, lr, first_step, use_autocast=False):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
    warmup = 20
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / warmup) * (0.55 + 0.45 * math.cos(math.pi * s / steps))
    )
    recent = []
    for step in range(first_step, first_step + steps):
        rows = torch.randint(0, data.size(0), (BATCH,))
        loss = lm_loss(model, data[rows], use_autocast)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        recent.append(loss.item())
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {sum(recent) / len(recent):.4f}")
            recent = []


def main():
    base = Language(1)
    domain = Language(2, base=base, changed=0.6)
    model = GPT()
    print("pretraining")
    run(model, base.sample(2000, BLOCK), PRE_STEPS, lr=2e-3, first_step=0)

    train, held_out = domain.sample(2000, BLOCK), domain.sample(100, BLOCK)
    print(f"fine-tuning, held-out loss before {lm_loss(model, held_out).item():.4f}")
    if not MENDED:
        model.to(torch.bfloat16)
    run(model, train, FT_STEPS, lr=6e-5, first_step=PRE_STEPS, use_autocast=MENDED)
    with torch.no_grad():
        print(f"held-out loss after {lm_loss(model, held_out, MENDED).item():.4f}")


if __name__ == "__main__":
    main()
