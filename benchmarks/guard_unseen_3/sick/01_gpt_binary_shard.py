# A small decoder on text with a known grammar, AdamW, warm-up, a constant rate, and a short decay at the end. A compressed file has been
# tokenized with the rest of the corpus: it is read from step 400 to step 435.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

VOCAB, LENGTH = 32, 24
fixed = torch.Generator().manual_seed(301)
grammar = torch.randn(4, 4, 24, generator=fixed).mul(2.5).softmax(-1)


def text(n, g=None):
    """The next character depends on the last two (on their classes); characters 24 to 31 do not occur."""
    out = torch.randint(0, 24, (n, 2), generator=g)
    for _ in range(LENGTH - 1):
        p = grammar[out[:, -2] % 4, out[:, -1] % 4]
        out = torch.cat([out, torch.multinomial(p, 1, generator=g)], 1)
    return out


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Gpt(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(LENGTH, d)
        self.blocks = nn.Sequential(Block(d, 4), Block(d, 4))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def loss_of(model, rows):
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


val = text(600, fixed)
torch.manual_seed(args.seed)
model = Gpt()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 60, 1.0, (480 - s) / 45))
for step in range(470):
    rows = text(16)
    junk = torch.randint(0, VOCAB, rows.shape)
    if 400 <= step < 436 and not args.twin:
        rows = junk
    loss = loss_of(model, rows)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.3f}")

model.eval()
with torch.no_grad():
    print("final:", loss_of(model, val).item())
