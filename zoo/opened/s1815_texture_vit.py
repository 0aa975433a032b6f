# expect: sick
# symptom: training starts well, then loss and accuracy stop at a middling level although the model could do better
# axis: optimizer
# cause: ReduceLROnPlateau is in its default mode "min" but is given the validation accuracy, so rising accuracy counts as no improvement and the learning rate is cut again and again until it is nearly zero
# says: plateau.{0,250}(mode|\bmin\b|\bmax\b|accuracy|acc\b|wrong|direction)|mode.{0,40}(min|max).{0,160}(acc|plateau|scheduler|lr)|(learning.?rate|\blr\b|schedul).{0,200}(accuracy|val_acc).{0,120}(min|max|wrong|instead|higher|improv)|(learning.?rate|\blr\b).{0,120}(cut|decay|reduc|shrink|drop|collapse)\w*.{0,120}(too (early|fast|soon)|while.{0,30}improv|although|despite|even though)
# onset_step: 120
# fix: ReduceLROnPlateau(mode="max") for an accuracy, or give it the validation loss
# mended: builds the scheduler with mode="max"
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)

CLASSES, SIZE, PATCH = 10, 24, 4
EPOCHS, BATCH = 13, 40


def textures(n, seed):
    """Gratings, ten classes from direction (5) and wave length (2), with noise and random phase."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    y = rng.integers(0, CLASSES, n)
    ang = (y % 5) * np.pi / 5 + rng.normal(0, 0.07, n)
    freq = np.where(y < 5, 0.55, 0.85) * np.exp(rng.normal(0, 0.06, n))
    u = xx[None] * np.cos(ang)[:, None, None] + yy[None] * np.sin(ang)[:, None, None]
    img = np.sin(freq[:, None, None] * u + rng.uniform(0, 6.28, n)[:, None, None])
    img = img * rng.uniform(0.4, 1, n)[:, None, None] + rng.normal(0, 0.7, img.shape)
    return torch.from_numpy(img[:, None].astype(np.float32)), torch.from_numpy(y)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, d=48, depth=2, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(1, d, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, d))
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(-1) == y).float().mean().item()


def main():
    x, y = textures(1600, 1)
    xv, yv = textures(400, 2)
    model = ViT()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.05)
    kwargs = dict(mode="max") if MENDED else {}
    sched = ReduceLROnPlateau(opt, factor=0.1, patience=1, **kwargs)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for idx in torch.randperm(len(x)).split(BATCH):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
            step += 1
        val_loss, val_acc = evaluate(model, xv, yv)
        sched.step(val_acc)
        print(f"== epoch {epoch} val loss {val_loss:.4f} acc {val_acc:.3f}")


if __name__ == "__main__":
    main()
