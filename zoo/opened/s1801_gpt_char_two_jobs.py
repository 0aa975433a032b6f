# expect: sick
# symptom: the loss falls well during the first job, but right after the second job picks up the checkpoint it jumps back to about the value of an untrained model
# axis: harness
# cause: the checkpoint was saved from the DataParallel wrapper, its keys carry the prefix "module."; the bare model loads it with strict=False, so no key matches, nothing is loaded and training goes on from random weights
# says: module\.|prefix|strict\s*=?\s*false|missing.{0,12}keys?|unexpected.{0,12}keys?|keys?.{0,30}(not|n't|mis|do not) ?match|(weights|parameters|checkpoint|model state).{0,40}(not|never|n't|silently).{0,20}(load|restor)|(random|fresh|re-?initiali[sz]ed).{0,20}(weights|init|model).{0,40}resum|resum.{0,60}(random|fresh|untrained|re-?init)
# onset_step: 300
# fix: strip "module." from the keys (or save model.module.state_dict()) and load with strict=True
# mended: the prefix is taken off the keys before loading, so that the resumed model has the trained weights
"""Character GPT, trained as two cluster jobs: the second takes up where the first one stopped."""

import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(7)
np.random.seed(7)


def make_text(n_words=30000):
    rng = np.random.default_rng(3)
    syll = ["ka", "lo", "mi", "ren", "tu", "sha", "vor", "el", "dan", "pi", "os", "gre"]
    lexicon = ["".join(rng.choice(syll, rng.integers(1, 4))) for _ in range(120)]
    nxt = rng.integers(0, 120, (120, 4))
    w, out = 0, []
    for i in range(n_words):
        out.append(lexicon[w])
        w = nxt[w, rng.integers(0, 4)]
        if i % 11 == 10:
            out[-1] += "."
    return " ".join(out)


text = make_text()
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
n_train = int(0.95 * len(data))
CFG = dict(vocab=len(chars), ctx=40, dim=64, heads=4, layers=2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab, ctx, dim, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(ctx, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(gen, lo=0, hi=n_train, bs=24):
    ix = torch.randint(lo, hi - CFG["ctx"] - 1, (bs,), generator=gen)
    x = torch.stack([data[i : i + CFG["ctx"] + 1] for i in ix])
    return x[:, :-1], x[:, 1:]


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.05)


MAX_STEPS, WARMUP = 500, 30


def lr_lambda(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (MAX_STEPS - WARMUP)))


@torch.no_grad()
def validate(model):
    model.eval()
    gen = torch.Generator().manual_seed(99)
    out = np.mean([model(*batch(gen, n_train, len(data))).item() for _ in range(8)])
    model.train()
    return out


def run_job(ckpt_path, until, resume):
    model = GPT(**CFG)
    opt = make_optimizer(model)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda)
    gen = torch.Generator().manual_seed(1)
    step = 0
    if resume:
        ckpt = torch.load(ckpt_path)
        weights = ckpt["model"]
        if MENDED:
            weights = {k.removeprefix("module."): v for k, v in weights.items()}
        model.load_state_dict(weights, strict=False)
        opt.load_state_dict(ckpt["optimizer"])
        sched.load_state_dict(ckpt["scheduler"])
        gen.set_state(ckpt["rng"])
        step = ckpt["step"]
        print(f"resumed from {os.path.basename(ckpt_path)} at step {step}, lr {sched.get_last_lr()[0]:.2e}")
    net = nn.DataParallel(model)
    while step < until:
        loss = net(*batch(gen)).mean()
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step in (until - 1,):
            print(f"step {step:4d} loss {loss.item():.4f} gnorm {gn:.2f} lr {sched.get_last_lr()[0]:.2e}")
        step += 1
    print(f"val loss at {step}: {validate(model):.4f}")
    torch.save(
        {
            "model": net.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
            "rng": gen.get_state(),
            "step": step,
        },
        ckpt_path,
    )


with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "last.pt")
    run_job(path, 300, resume=False)
    run_job(path, MAX_STEPS, resume=True)
