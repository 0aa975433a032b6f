# expect: sick
# symptom: training and validation loss drop to almost nothing within a few hundred steps, but sampled continuations are garbage
# axis: model
# cause: the self-attention has no causal mask, so every position sees the next token it has to predict
# says: (causal|future|look.?ahead|triangular|tril\b|leak\w* (of )?(the )?(next|future|target)|(sees?|attends? to|peek\w*|access\w*) (at )?(the )?(next|later|future|following|subsequent|target)|bidirectional)
# onset_step: 1
# fix: pass is_causal=True to scaled_dot_product_attention
# mended: CAUSAL is set to True when MENDED=1
import argparse
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
CAUSAL = os.environ.get("MENDED") == "1"

SUBJECTS = ["the cat", "a farmer", "my uncle", "the old queen", "a sailor", "the robot"]
VERBS = {
    "the cat": "chases",
    "a farmer": "plants",
    "my uncle": "repairs",
    "the old queen": "rules",
    "a sailor": "sails",
    "the robot": "counts",
}
OBJECTS = {
    "chases": ["mice", "birds"],
    "plants": ["corn", "wheat"],
    "repairs": ["clocks", "radios"],
    "rules": ["the land", "the sea"],
    "sails": ["ships", "boats"],
    "counts": ["stars", "sheep"],
}


def make_corpus(n, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        s = rng.choice(SUBJECTS)
        v = VERBS[s]
        out.append(f"{s} {v} {rng.choice(OBJECTS[v])}.")
    return "\n".join(out) + "\n"


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=CAUSAL)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class CharGPT(nn.Module):
    def __init__(self, vocab, dim=64, heads=4, layers=2, ctx=48):
        super().__init__()
        self.ctx = ctx
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(ctx, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for blk in self.blocks:
            x = blk(x)
        logits = self.head(self.ln(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -self.ctx :])
            probs = F.softmax(logits[:, -1] / 0.7, -1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], 1)
        return idx


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(1337)

    text = make_corpus(3000, 0)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text])
    split = int(0.9 * len(data))
    train, val = data[:split], data[split:]

    model = CharGPT(len(chars))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 30) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / args.steps))) + 0.01
    )

    def get_batch(src):
        ix = torch.randint(len(src) - model.ctx - 1, (args.batch_size,))
        x = torch.stack([src[i : i + model.ctx] for i in ix])
        y = torch.stack([src[i + 1 : i + 1 + model.ctx] for i in ix])
        return x, y

    for step in range(args.steps):
        x, y = get_batch(train)
        _, loss = model(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0 or step == args.steps - 1:
            model.eval()
            with torch.no_grad():
                vl = model(*get_batch(val))[1].item()
            model.train()
            print(f"step {step:4d} train {loss.item():.4f} val {vl:.4f}")

    prompt = torch.tensor([[stoi["\n"]]] * 1)
    sample = "".join(chars[i] for i in model.generate(prompt, 600)[0].tolist())
    lines = sample.split("\n")[1:-1]
    known = set(text.split("\n"))
    ok = sum(l in known for l in lines)
    print("sample:", sample[:160].replace("\n", " | "))
    print(f"well-formed sentences: {ok}/{max(1, len(lines))}")


if __name__ == "__main__":
    main()
