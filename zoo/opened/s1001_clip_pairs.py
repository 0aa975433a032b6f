# expect: sick
# symptom: the first loss is fine (about ln 48), from the second step on it is nan
# axis: precision
# cause: the whole model including its weights is in float16 and Adam runs directly on the half weights; eps=1e-8 and the squared gradients underflow to 0 in float16, so the update is 0/0 (no float32 master weights)
# says: \beps(ilon)?\b.{0,120}(underflow|half|fp16|float16|zero|round|too small|1e-0?8)|(underflow|second moment|exp_avg_sq).{0,120}(half|fp16|float16|adam|eps)|(half|fp16|float16|low[- ]precision|16[- ]bit).{0,60}(param|weight|adam|optimi[sz]er|master)|(param|weight|model|optimi[sz]er state|adam)\w*.{0,60}(half|fp16|float16)|master (weight|cop|param)|\.half\(\)
# onset_step: 1
# fix: keep weights and Adam states in float32 (autocast for the forward), or at least an eps such as 1e-4
# mended: model.half() is left out, the model trains in float32
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

COLORS, SHAPES, SIZES, QUADS = 6, 4, 3, 4
VOCAB = 200  # caption vocabulary, BOS = 1, EOS = 2, pad = 0
CTX = 10


def draw(color, shape, size, quad):
    img = np.full((3, 16, 16), 0.1, dtype=np.float32)
    r = 2 + size
    cy, cx = (4 if quad < 2 else 11), (4 if quad % 2 == 0 else 11)
    yy, xx = np.mgrid[0:16, 0:16]
    if shape == 0:
        m = (yy - cy) ** 2 + (xx - cx) ** 2 <= r * r
    elif shape == 1:
        m = (abs(yy - cy) <= r) & (abs(xx - cx) <= r)
    elif shape == 2:
        m = abs(yy - cy) + abs(xx - cx) <= r
    else:
        m = (abs(yy - cy) <= 1) | (abs(xx - cx) <= 1)
    rgb = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1)][color]
    for c in range(3):
        img[c][m] = rgb[c]
    return img + rng.normal(0, 0.05, img.shape).astype(np.float32)


def caption(color, shape, size, quad):
    words = [10 + color, 30 + shape, 40 + size, 50 + quad]
    filler = rng.integers(60, 120, rng.integers(1, 4)).tolist()
    toks = [1] + filler + words + [2]
    toks = toks[:CTX]
    return toks + [0] * (CTX - len(toks))


def make_pairs(n):
    imgs, caps = [], []
    for _ in range(n):
        a = (rng.integers(COLORS), rng.integers(SHAPES), rng.integers(SIZES), rng.integers(QUADS))
        imgs.append(draw(*a))
        caps.append(caption(*a))
    return torch.tensor(np.stack(imgs)), torch.tensor(caps)


class TextTower(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(CTX, d) * 0.01)
        nn.init.normal_(self.tok.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.ln = nn.LayerNorm(d)

    def forward(self, t):
        x = self.enc(self.tok(t) + self.pos)
        w = (t != 0).unsqueeze(-1).to(x.dtype)
        return self.ln((x * w).sum(1) / w.sum(1))


class ImageTower(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.patch = nn.Linear(3 * 16, d)
        self.pos = nn.Parameter(torch.randn(16, d) * 0.01)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.ln = nn.LayerNorm(d)

    def forward(self, im):
        p = F.unfold(im.float(), 4, stride=4).transpose(1, 2).to(self.pos.dtype)
        return self.ln(self.enc(self.patch(p) + self.pos).mean(1))


class MiniCLIP(nn.Module):
    def __init__(self, d=64, e=48):
        super().__init__()
        self.visual, self.text = ImageTower(d), TextTower(d)
        self.vproj, self.tproj = nn.Linear(d, e, bias=False), nn.Linear(d, e, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, im, tx):
        v = F.normalize(self.vproj(self.visual(im)), dim=-1)
        t = F.normalize(self.tproj(self.text(tx)), dim=-1)
        return self.logit_scale.exp().clamp(max=100) * v @ t.T


def main():
    imgs, caps = make_pairs(2048)
    model = MiniCLIP()
    if not MENDED:
        model = model.half()
    dtype = model.logit_scale.dtype
    opt = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))
    steps, bs, t0 = 160, 48, time.time()
    for step in range(1, steps + 1):
        idx = torch.randint(0, len(imgs), (bs,))
        logits = model(imgs[idx].to(dtype), caps[idx]).float()
        target = torch.arange(bs)
        loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step <= 5 or step % 25 == 0:
            acc = (logits.argmax(1) == target).float().mean().item()
            print(f"step {step:4d} loss {loss.item():.4f} acc {acc:.3f} t {time.time() - t0:.1f}s", flush=True)


main()
