# expect: healthy
# symptom: the loss jumps up by a factor of ten or more several times (steps 150, 300, 450), each time when the curriculum goes to longer strings
# axis: none
# mended: none
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

DIGITS, SEP, PAD = 10, 10, 11
STAGES = [(0, 3), (150, 5), (300, 7), (450, 9)]
MAXLEN = 2 * 9 + 1


def length_at(step):
    return [n for s, n in STAGES if step >= s][-1]


def pick_length(stage, gen):
    """Mostly the current stage, now and then an earlier one so that it is not forgotten."""
    known = [n for _, n in STAGES if n <= stage]
    if torch.rand(1, generator=gen).item() < 0.75:
        return stage
    return known[int(torch.randint(0, len(known), (1,), generator=gen))]


def make_batch(n, length, gen):
    """digits SEP digits-reversed; only the part after SEP is scored."""
    d = torch.randint(0, DIGITS, (n, length), generator=gen)
    seq = torch.cat([d, torch.full((n, 1), SEP), d.flip(1)], 1)
    x, y = seq[:, :-1], seq[:, 1:].clone()
    y[:, :length] = -100
    return x, y


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(12, d), nn.Embedding(MAXLEN, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, 12)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.size(1)))
        for b in self.blocks:
            h = b(h)
        return self.head(self.ln(h))


@torch.no_grad()
def exact(model, length, gen):
    x, y = make_batch(200, length, gen)
    pred = model(x).argmax(-1)
    ok = (pred == y) | (y == -100)
    return ok.all(1).float().mean().item()


def main():
    torch.manual_seed(0)
    gen, val = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    model = TinyGPT()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    stage = length_at(0)
    for step in range(650):
        if length_at(step) != stage:
            print(f"   length {stage}: exact match {exact(model, stage, val):.2f}; now length {length_at(step)}")
            stage = length_at(step)
        for group in opt.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 40)
        n = pick_length(stage, gen)
        x, y = make_batch(64, n, gen)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 15 == 0:
            print(f"step {step:4d} len {n} loss {loss.item():.4f}")
    for s in (3, 9):
        print(f"final exact match at length {s}: {exact(model, s, val):.2f}")


if __name__ == "__main__":
    main()
