# expect: sick
# symptom: after the resume at step 300 the loss jumps back to its starting value and ends far above the level before the stop; no error is raised
# axis: harness
# cause: the checkpoint was saved from a DataParallel-wrapped model, its keys carry the prefix "module.", and load_state_dict(strict=False) silently loads no weights at all
# says: prefix|module\.|strict|(key|name)s?.{0,40}(mismatch|do(es)? ?n.t match|do(es)? not match|differ)|(\bweights?|model (weights?|state|param\w*)|state.?dict)\b.{0,50}(not (re)?(load|stor)|n.t (re)?(load|stor)|never (re)?(load|stor)|ignored|silently|missing|random|re-?init|from scratch|fresh)|(lost|missing|unloaded|reinitiali[sz]ed|random(ly)?|fresh)\w*.{0,30}(weights|model)
# onset_step: 301
# fix: save the state dict of the inner module so that the keys match
# mended: the checkpoint holds model.module.state_dict(); the loss goes on where it stopped
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(5)
torch.set_num_threads(1)

VOCAB, CTX, DIM, HEADS, LAYERS = 40, 40, 48, 4, 2
TOTAL, STOP, BATCH, PEAK = 480, 300, 10, 3e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)
        for p in (self.tok.weight, self.pos.weight, self.head.weight):
            nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(h)))


TABLE = torch.distributions.Dirichlet(torch.full((VOCAB,), 0.05)).sample((VOCAB, 4))


def make_batch(n, gen):
    ids = torch.randint(0, VOCAB, (n, CTX + 1), generator=gen)
    phase = torch.randint(0, 4, (n,), generator=gen)
    for t in range(1, CTX + 1):
        probs = TABLE[ids[:, t - 1], (phase + t) % 4]
        ids[:, t] = torch.multinomial(probs, 1, generator=gen).squeeze(1)
    return ids[:, :-1], ids[:, 1:]


def set_lr(opt, step):
    f = min(1.0, step / 30) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / TOTAL)))
    for g in opt.param_groups:
        g["lr"] = PEAK * f


def train(model, opt, first, last, gen):
    for step in range(first, last + 1):
        set_lr(opt, step)
        x, y = make_batch(BATCH, gen)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step == first or step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")


def main():
    t0 = time.time()
    gen = torch.Generator().manual_seed(99)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")

    model = nn.DataParallel(GPT())
    opt = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=0.05)
    train(model, opt, 1, STOP, gen)
    weights = model.module.state_dict() if MENDED else model.state_dict()
    torch.save({"model": weights, "opt": opt.state_dict(), "step": STOP, "gen": gen.get_state()}, path)
    del model, opt

    ckpt = torch.load(path)
    model = GPT()
    model.load_state_dict(ckpt["model"], strict=False)
    opt = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=0.05)
    opt.load_state_dict(ckpt["opt"])
    gen.set_state(ckpt["gen"])
    print(f"resumed at step {ckpt['step']}")
    train(model, opt, ckpt["step"] + 1, TOTAL, gen)

    with torch.no_grad():
        x, y = make_batch(128, gen)
        print(
            f"held-out loss {F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item():.4f}  time {time.time() - t0:.1f}s"
        )


if __name__ == "__main__":
    main()
