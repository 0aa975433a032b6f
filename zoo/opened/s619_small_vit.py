# expect: sick
# symptom: the ViT learns well, then in the last epochs the loss climbs again and accuracy falls back towards chance
# axis: schedule
# cause: the linear decay is laid out for the main epochs only and has no floor, so in the extra clean epochs the learning rate goes negative and every step climbs the loss
# says: ((negative|below (zero|0)|less than (zero|0)|under (zero|0)|< ?0|minus|wrong sign|sign (flip|change)\w*).{0,80}(learning.?rate|\blr\b|step.?size|schedul\w*|decay)|(learning.?rate|\blr\b|step.?size|schedul\w*|decay).{0,100}(negative|below (zero|0)|less than (zero|0)|under (zero|0)|< ?0|past (zero|0|its end)|through (zero|0)|cross\w* (zero|0)|no floor|not (clamped|floored)|un-?clamped|beyond its end|wrong sign)|gradient.?ascent|(schedul\w*|decay|total_steps|horizon).{0,100}(too short|shorter than|ends? (too )?(early|before)|run(s)? (out|past)|exhaust\w*|fewer steps|too few steps|only (covers|counts)|extra epochs?))
# onset_step: 402
# fix: count the clean epochs in the schedule's total number of steps (or floor the factor at 0)
# mended: with MENDED=1 total_steps counts the main and the clean epochs
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
S, P, CLASSES = 16, 4, 8


def make_split(n, seed):
    """Two small glyphs per picture; the class is (glyph kind pair) x (left/right order)."""
    g = torch.Generator().manual_seed(seed)
    glyphs = torch.tensor(
        [
            [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]],
            [[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]],
            [[0, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0], [0, 1, 1, 0]],
        ]
    ).float()
    pairs = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1], [0, 0], [1, 1]])
    x = 0.35 * torch.randn(n, 1, S, S, generator=g)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    pos = torch.stack(
        [
            torch.randint(0, 13, (n,), generator=g),
            torch.randint(0, 5, (n,), generator=g),
            torch.randint(0, 13, (n,), generator=g),
            torch.randint(8, 13, (n,), generator=g),
        ],
        1,
    ).tolist()
    for i in range(n):
        a, b = pairs[y[i]].tolist()
        r1, c1, r2, c2 = pos[i]
        x[i, 0, r1 : r1 + 4, c1 : c1 + 4] += glyphs[a]
        x[i, 0, r2 : r2 + 4, c2 : c2 + 4] += glyphs[b]
    return x, y


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, d=48, depth=2, heads=4):
        super().__init__()
        self.patch = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, d, P, stride=P))
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (S // P) ** 2 + 1, d))
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, x):
        t = self.patch(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(t), -1, -1), t], 1) + self.pos
        return self.head(self.norm(self.blocks(t))[:, 0])


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--clean-epochs", type=int, default=2, help="extra epochs without augmentation")
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--weight-decay", type=float, default=0.05)
    args = p.parse_args()

    torch.manual_seed(2)
    xtr, ytr = make_split(6400, 0)
    xte, yte = make_split(800, 1)
    steps_per_epoch = len(xtr) // args.batch_size
    model = ViT()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay, betas=(0.9, 0.98))
    total_steps = args.epochs * steps_per_epoch
    if MENDED:
        total_steps += args.clean_epochs * steps_per_epoch
    warmup = 30
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: (s + 1) / warmup if s < warmup else 1 - s / total_steps)

    step = 0
    for epoch in range(args.epochs + args.clean_epochs):
        augment = epoch < args.epochs
        for idx in torch.randperm(len(xtr)).split(args.batch_size):
            x = xtr[idx]
            if augment:
                x = x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1)) + 0.1 * torch.randn_like(x)
            loss = F.cross_entropy(model(x), ytr[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} test accuracy {accuracy(model, xte, yte):.3f}", flush=True)


if __name__ == "__main__":
    main()
