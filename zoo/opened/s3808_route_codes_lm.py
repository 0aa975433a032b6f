# expect: sick
# symptom: the loss sinks a little and then barely moves, far above what the data allow
# axis: precision
# cause: the weights themselves are stored in bfloat16, so small optimizer updates are rounded away
# says: (bf16|bfloat16|low.?precision|half.?precision|16.?bit).*(weight|param|update|round|lost|master|optim)
# onset_step: 0
# fix: keep the parameters in float32 and use bfloat16 only in autocast
# mended: the script applies that change if the environment has MENDED=1
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
MENDED = os.environ.get("MENDED") == "1"

VOCAB, CTX, DIM = 48, 32, 64
PARAM_DTYPE = torch.float32 if MENDED else torch.bfloat16


def make_stream(length, seed):
    """Codes of parcel scans: each code has few likely successors, chosen by the code two before."""
    lay = torch.Generator().manual_seed(1234)
    nxt = torch.stack([torch.randperm(VOCAB, generator=lay)[:2] for _ in range(VOCAB)])
    g = torch.Generator().manual_seed(seed)
    noise = torch.rand(length, generator=g)
    rand = torch.randint(0, VOCAB, (length,), generator=g)
    seq = [0, 1]
    table, noise, rand = nxt.tolist(), noise.tolist(), rand.tolist()
    for i in range(2, length):
        seq.append(rand[i] if noise[i] < 0.05 else table[seq[-1]][seq[-2] % 2])
    return torch.tensor(seq)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class RouteLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CTX, DIM)
        self.blocks = nn.Sequential(Block(DIM, 4), Block(DIM, 4))
        self.norm = nn.LayerNorm(DIM)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.out(self.norm(self.blocks(x)))


def batches(stream, n, size, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        at = torch.randint(0, len(stream) - CTX - 1, (size, 1), generator=g)
        window = stream[at + torch.arange(CTX + 1)]
        yield window[:, :-1], window[:, 1:]


def loss_of(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def main():
    train, valid = make_stream(30000, 0), make_stream(6000, 1)
    model = RouteLM().to(PARAM_DTYPE)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.98), weight_decay=0.01)
    total, warm = 500, 20
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / warm) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, s / total)))
    )
    for step, (x, y) in enumerate(batches(train, total, 16, seed=3)):
        loss = loss_of(model, x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    with torch.no_grad():
        vl = [loss_of(model, x, y).item() for x, y in batches(valid, 10, 32, seed=4)]
    print(f"final loss {loss.item():.4f} valid_loss {sum(vl) / len(vl):.4f}")


if __name__ == "__main__":
    main()
