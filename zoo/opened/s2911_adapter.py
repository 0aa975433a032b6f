# expect: sick
# symptom: adapting to the new language stalls around the unigram level although the same recipe normally reaches a third of that loss; no spike, nothing explodes
# axis: harness
# cause: Going to eval mode merges the low-rank (LoRA) product into the frozen base weights, but coming back to train mode only clears the flag without subtracting it again, so every evaluation adds the adapter once more to the base weights.
# says: (merg|folded|fold(s|ing)? |fuse|baked).*(never|not|without|n.t |no |lack|miss|forget|again|every eval|each eval|repeated|once more|twice|double|accumulat|on top)|un-?merg|(double|twice|repeated|accumulat).*(lora|adapter|low[- ]rank|base weight)
# onset_step: 311
# fix: subtract the merged product from the weights when returning to train mode
# mended: yes
"""Adapting a small character LM to a second language with low-rank adapters.

First the base model is trained on language A, then the base is frozen and
only the adapters of the attention and MLP projections are trained on B.
"""

import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class LoRALinear(nn.Linear):
    def __init__(self, d_in, d_out, rank=8, alpha=16):
        super().__init__(d_in, d_out)
        self.lora_a = nn.Parameter(torch.randn(rank, d_in) / math.sqrt(d_in))
        self.lora_b = nn.Parameter(torch.zeros(d_out, rank))
        self.scaling = alpha / rank
        self.merged = False

    def delta(self):
        return self.scaling * (self.lora_b @ self.lora_a)

    def train(self, mode=True):
        super().train(mode)
        if mode and self.merged:
            if MENDED:
                self.weight.data -= self.delta().data
            self.merged = False
        elif not mode and not self.merged:
            self.weight.data += self.delta().data
            self.merged = True
        return self

    def forward(self, x):
        out = F.linear(x, self.weight, self.bias)
        if not self.merged:
            out = out + self.scaling * F.linear(F.linear(x, self.lora_a), self.lora_b)
        return out


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = LoRALinear(d, 3 * d), LoRALinear(d, d)
        self.up, self.down = LoRALinear(d, 4 * d), LoRALinear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self, vocab, d=64, heads=4, depth=2, ctx=48):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for blk in self.blocks:
            h = blk(h)
        return self.head(self.norm(h))


def language(seed, vocab, n_words=60, length=60000):
    """Text of random words, each followed by a space (symbol 0)."""
    r = np.random.default_rng(seed)
    words = [r.integers(1, vocab, r.integers(3, 8)).tolist() + [0] for _ in range(n_words)]
    follow = r.dirichlet(np.full(n_words, 0.1), n_words)
    out, w = [], 0
    while len(out) < length:
        out += words[w]
        w = int(r.choice(n_words, p=follow[w]))
    return torch.tensor(out[:length])


def get_batch(text, n, ctx, gen):
    i = torch.randint(0, len(text) - ctx - 1, (n,), generator=gen)
    w = text[i[:, None] + torch.arange(ctx + 1)]
    return w[:, :-1], w[:, 1:]


def lm_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model, text, ctx):
    model.eval()
    loss = lm_loss(model, *get_batch(text, 64, ctx, torch.Generator().manual_seed(0))).item()
    model.train()
    return loss


def train(model, params, text, heldout, first, steps, lr, args, gen, eval_every):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for step in range(first, first + steps):
        x, y = get_batch(text, args.batch, args.ctx, gen)
        loss = lm_loss(model, x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % eval_every == 0:
            print(f"step {step} heldout {evaluate(model, heldout, args.ctx):.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--ctx", type=int, default=48)
    ap.add_argument("--base-steps", type=int, default=300)
    ap.add_argument("--adapt-steps", type=int, default=300)
    ap.add_argument("--eval-every", type=int, default=10)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    vocab = 28
    lang_a, lang_b = language(1, vocab), language(2, vocab)
    model = CharLM(vocab, ctx=args.ctx)
    base = [p for n, p in model.named_parameters() if "lora_" not in n]
    lora = [p for n, p in model.named_parameters() if "lora_" in n]
    print("language A, base weights")
    train(model, base, lang_a[:-6000], lang_a[-6000:], 1, args.base_steps, 3e-3, args, gen, 100)
    for p in base:
        p.requires_grad_(False)
    print("language B, adapters only")
    train(
        model,
        lora,
        lang_b[:-6000],
        lang_b[-6000:],
        args.base_steps + 1,
        args.adapt_steps,
        3e-3,
        args,
        gen,
        args.eval_every,
    )


if __name__ == "__main__":
    main()
