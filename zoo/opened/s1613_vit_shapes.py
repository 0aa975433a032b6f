# expect: sick
# symptom: the ViT trains well for some 400 steps (loss down to about 0.4), then the loss gets rough, jumps to 1.4 and more and does not come back; accuracy ends at a third
# axis: optimizer
# cause: the warm-up lambda of LambdaLR is never capped at 1: the learning rate keeps growing linearly past the end of the warm-up until training diverges
# says: warm-?up[^.]{0,100}(cap|never|min\(|clamp|grow|past|beyond|end|keeps|unbounded)|(learning rate|\blr\b|schedul\w*)[^.]{0,80}(too (high|large|big)|grow|keeps|ris(es|ing)|increas|unbounded|climb|never)|LambdaLR
# onset_step: 430
# fix: cap the factor: min(1.0, (step + 1) / WARMUP), then constant or decaying
# mended: the factor of the learning rate is capped at 1
import os
import time

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)
rng = np.random.default_rng(21)

SIZE, PATCH, CLASSES = 20, 4, 8
STEPS, BATCH, WARMUP, PEAK_LR = 800, 32, 42, 7e-4


def draw(kind):
    """One of eight small figures at a random place on a noisy background."""
    im = rng.normal(0, 0.2, (SIZE, SIZE)).astype(np.float32)
    s = int(rng.integers(7, 11))
    y, x = rng.integers(0, SIZE - s, size=2)
    yy, xx = np.mgrid[0:s, 0:s]
    c = (s - 1) / 2
    r = np.hypot(yy - c, xx - c)
    fig = [
        np.ones((s, s), bool),  # filled square
        (yy < 2) | (yy >= s - 2) | (xx < 2) | (xx >= s - 2),  # frame
        r < s / 2,  # disc
        (r < s / 2) & (r > s / 2 - 2),  # ring
        (np.abs(yy - c) < 1.2) | (np.abs(xx - c) < 1.2),  # plus
        (np.abs(yy - xx) < 1.6) | (np.abs(yy + xx - s + 1) < 1.6),  # cross
        yy >= xx,  # triangle
        (yy % 3 == 0),  # stripes
    ][kind]
    im[y : y + s, x : x + s] += 1.3 * fig
    return im


def make_set(n):
    y = rng.integers(0, CLASSES, n)
    x = np.stack([draw(k) for k in y])[:, None]
    return torch.from_numpy(x), torch.from_numpy(y)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        x = self.n1(x + self.attn(x, x, x, need_weights=False)[0])
        return self.n2(x + self.mlp(x))


class ViT(nn.Module):
    def __init__(self, d=64, depth=4, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(1, d, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, d))
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, x):
        t = self.patch(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(x), -1, -1), t], 1) + self.pos
        return self.head(self.norm(self.blocks(t))[:, 0])


def lr_factor(step):
    f = (step + 1) / WARMUP
    return min(1.0, f) if MENDED else f


def main():
    xtr, ytr = make_set(6000)
    xva, yva = make_set(600)
    model = ViT()
    opt = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
    crit = nn.CrossEntropyLoss()
    t0 = time.time()
    for step in range(STEPS):
        i = torch.from_numpy(rng.integers(0, len(xtr), BATCH))
        loss = crit(model(xtr[i]), ytr[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        acc = (model(xva).argmax(1) == yva).float().mean().item()
    print(f"val accuracy {acc:.3f}  ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
