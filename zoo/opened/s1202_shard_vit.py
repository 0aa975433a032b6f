# expect: sick
# symptom: loss falls well for 120 steps, then jumps up suddenly for a while, comes down slowly, and jumps again in the second pass at the same shard
# axis: data
# cause: one shard (written by a newer exporter) holds uint8 pixels 0..255 while the others hold floats 0..1; the reader casts to float without dividing by 255, so these batches are 255 times too large
# says: (uint8|255|un-?normali[sz]|not normali[sz]|(?:input|pixel|image|value|batch|data)s?.{0,60}(scale|range|larger|magnitude|normali[sz])|(scale|range|magnitude).{0,40}(input|pixel|image|batch|shard|data))
# onset_step: 120
# fix: scale by dtype when reading (uint8 -> /255), check the range of every shard
# mended: the reader divides uint8 arrays by 255
"""Small ViT on coloured shapes, streamed from shards in the order they were written."""

import io
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

SIZE, CLASSES, BATCH, PER_SHARD, SHARDS, EPOCHS = 24, 6, 32, 960, 6, 2


def draw(rng, label):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    cy, cx = rng.uniform(8, 16, 2)
    r = rng.uniform(4, 7)
    dy, dx = yy - cy, xx - cx
    m = [
        dy**2 + dx**2 < r * r,
        (np.abs(dy) < r * 0.8) & (np.abs(dx) < r * 0.8),
        np.abs(dy) + np.abs(dx) < r * 1.1,
        (np.abs(dy) < r * 0.3) | (np.abs(dx) < r * 0.3),
        (dy**2 + dx**2 < r * r) & (dy**2 + dx**2 > (r * 0.6) ** 2),
        (dy > -r * 0.7) & (dy < r * 0.7) & (np.abs(dx) < (dy + r) * 0.5),
    ][label]
    img = np.ones((3, SIZE, SIZE)) * rng.uniform(0, 0.5, (3, 1, 1))
    img[:, m] = rng.uniform(0.4, 1, (3, 1))
    return np.clip(img + rng.normal(0, 0.06, img.shape), 0, 1)


def write_shards():
    rng = np.random.default_rng(8)
    shards = []
    for s in range(SHARDS):
        labels = rng.integers(0, CLASSES, PER_SHARD)
        imgs = np.stack([draw(rng, int(l)) for l in labels])
        exporter = 2 if s == 4 else 1
        arr = (imgs * 255).round().astype(np.uint8) if exporter == 2 else imgs.astype(np.float16)
        buf = io.BytesIO()
        np.savez(buf, images=arr, labels=labels)
        shards.append(buf.getvalue())
    return shards


def read_shard(blob):
    z = np.load(io.BytesIO(blob))
    images = z["images"]
    x = torch.from_numpy(images.astype(np.float32))
    if MENDED and images.dtype == np.uint8:
        x = x / 255.0
    return x, torch.from_numpy(z["labels"])


def stream(shards, epochs):
    g = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for blob in shards:
            x, y = read_shard(blob)
            for idx in torch.randperm(len(x), generator=g).split(BATCH):
                yield x[idx], y[idx]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, patch=4, d=64, depth=3, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, (SIZE // patch) ** 2 + 1, d) * 0.02)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, CLASSES)

    def forward(self, x):
        x = self.patch(x * 2 - 1).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


def main():
    shards = write_shards()
    rng = np.random.default_rng(99)
    vy = rng.integers(0, CLASSES, 400)
    vx = torch.from_numpy(np.stack([draw(rng, int(l)) for l in vy])).float()
    vy = torch.from_numpy(vy)
    model = ViT()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
    t0 = time.time()
    for step, (x, y) in enumerate(stream(shards, EPOCHS)):
        for g in opt.param_groups:
            g["lr"] = 1e-3 * min(1.0, (step + 1) / 20)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        acc = (model(vx).argmax(-1) == vy).float().mean().item()
    print(f"last loss {loss.item():.4f}  val acc {acc:.3f}  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
