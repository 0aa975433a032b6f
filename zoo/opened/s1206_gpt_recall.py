# expect: sick
# symptom: training loss goes towards 0 (0.1) although the first half of each string is random and cannot be known (about 1.1 is the floor); text written one letter at a time is wrong
# axis: model
# cause: the heads are split with view(B, H, T, d) instead of view(B, T, H, d).transpose(1, 2), so time and channels are mixed and, after the outputs are put back with a transpose, a position receives values of later positions (the causal mask no longer hides the future)
# says: (\bview\b|reshape|transpose|permut|head split|split.{0,20}head|heads?).{0,140}(transpose|mix|scrambl|wrong|time|position|axis|axes|dim|order|shape|layout|future|leak)|(future|leak|later (token|position)|look.?ahead|sees? ahead)
# onset_step: 0
# fix: view(B, T, H, d).transpose(1, 2)
# mended: the split into heads uses view(B, T, H, d).transpose(1, 2)
"""Tiny GPT on random strings that are said twice; the second half can be copied from the first."""

import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(29)

VOCAB, HALF, STEPS, BATCH = 16, 12, 550, 64
T = 2 * HALF


def batch(n, gen):
    trans = TRANS[torch.zeros(n, dtype=torch.long)]
    first = torch.empty(n, HALF, dtype=torch.long)
    first[:, 0] = torch.randint(0, VOCAB, (n,), generator=gen)
    for t in range(1, HALF):
        p = trans[torch.arange(n), first[:, t - 1]]
        first[:, t] = torch.multinomial(p, 1, generator=gen).squeeze(1)
    return torch.cat([first, first], 1)


TRANS = torch.softmax(torch.randn(1, VOCAB, VOCAB, generator=torch.Generator().manual_seed(6)) * 1.0, -1)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h, self.hd = heads, d // heads
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.register_buffer("mask", torch.tril(torch.ones(T, T)).bool(), persistent=False)

    def split(self, x):
        b, t, c = x.shape
        if MENDED:
            return x.view(b, t, self.h, self.hd).transpose(1, 2)
        return x.view(b, self.h, t, self.hd)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = self.split(q.contiguous()), self.split(k.contiguous()), self.split(v.contiguous())
        att = q @ k.transpose(-2, -1) / math.sqrt(self.hd)
        att = att.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.proj(y)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, d=64, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(T, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCAB, bias=False)

    def forward(self, x):
        x = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def main():
    gen = torch.Generator().manual_seed(2)
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 50) * (1 - 0.9 * max(0, s - 50) / (STEPS - 50))
    )
    t0 = time.time()
    for step in range(STEPS):
        x = batch(BATCH, gen)
        logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        x = batch(256, gen)
        y = x[:, : HALF + 1]
        while y.shape[1] < T:
            y = torch.cat([y, model(y)[:, -1:].argmax(-1)], 1)
        hit = (y == x)[:, HALF + 1 :].float().mean().item()
    print(f"written second half: letters right {hit:.3f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
