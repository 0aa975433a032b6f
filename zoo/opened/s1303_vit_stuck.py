# expect: sick
# symptom: the loss jumps up within the first steps and then stays at 2.30 (ln 10), accuracy 10 percent
# axis: optimizer
# cause: the learning rate (1e-2 with Adam) is far too high for a post-norm transformer, and there is no warmup: the first updates wreck the weights and the output becomes constant
# says: (learning rate|\blr\b|step size).{0,80}(too (high|large|big)|high|large|excessive|aggressive|lower|reduce|decrease)|(lower|reduce|decrease|smaller|too (high|large)).{0,40}(learning rate|\blr\b|step size)|(no|missing|without|add|lack\w*).{0,30}warm-?up
# onset_step: 1
# fix: lr 5e-4
# mended: lr 5e-4 instead of 1e-2
import os
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(7)
rng = np.random.default_rng(7)

CLASSES, SIZE, PATCH = 10, 24, 6


def make_images(n):
    """Ten kinds of oriented gratings (five angles, two frequencies) with random phase, place and noise."""
    y = rng.integers(0, CLASSES, size=n)
    g = np.arange(SIZE)
    xx, yy = np.meshgrid(g, g)
    out = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    for i in range(n):
        ang = math.pi * (y[i] % 5) / 5 + rng.normal() * 0.06
        freq = 0.55 if y[i] < 5 else 1.0
        wave = np.sin(freq * (xx * math.cos(ang) + yy * math.sin(ang)) + rng.uniform(0, 2 * math.pi))
        cx, cy = rng.uniform(8, 16, size=2)
        env = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 60.0)
        out[i, 0] = wave * env + 0.25 * rng.normal(size=wave.shape)
    return torch.from_numpy(out), torch.from_numpy(y)


class ViT(nn.Module):
    def __init__(self, d=48, depth=4, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(1, d, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, n + 1, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(d, CLASSES)
        nn.init.trunc_normal_(self.cls, std=0.02)

    def forward(self, x):
        t = self.patch(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(t), -1, -1), t], 1) + self.pos
        return self.head(self.blocks(t)[:, 0])


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


x_train, y_train = make_images(3200)
x_val, y_val = make_images(500)
model = ViT()
opt = torch.optim.AdamW(model.parameters(), lr=5e-4 if MENDED else 1e-2, weight_decay=0.05)

BS, step = 64, 0
for epoch in range(6):
    order = torch.randperm(len(x_train))
    for i in range(0, len(order) - BS + 1, BS):
        idx = order[i : i + BS]
        loss = F.cross_entropy(model(x_train[idx]), y_train[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 5 or step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"epoch {epoch} val acc {accuracy(model, x_val, y_val):.3f}")
