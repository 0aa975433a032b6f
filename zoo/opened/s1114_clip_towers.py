# expect: sick
# symptom: the contrastive loss falls a little, then swings up and down between about 1.7 and 4 for the rest of the run; recall stays near zero
# axis: optimizer
# cause: opt.zero_grad() is called once per epoch only, so gradients of all earlier batches of the epoch pile up in .grad and every step uses their sum
# says: zero_grad|zeroed|(gradient|grad)s?[^.]{0,100}(accumulat\w*|pil\w* up|not (cleared|reset|zeroed)|never (cleared|reset|zeroed)|stale|left ?over|summ?ed|add(ed)? up|carr\w* over|leak\w*|grow\w*)
# onset_step: 10
# fix: call opt.zero_grad() before every backward
# mended: zero_grad at every step
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

COLOURS, SHAPES, PLACES, SIZE = 6, 6, 9, 12
WORDS = COLOURS + SHAPES + PLACES + 8
PALETTE = np.random.default_rng(4).uniform(0.2, 1.0, (COLOURS, 3)).astype(np.float32)
STENCIL = (np.random.default_rng(5).random((SHAPES, 4, 4)) < 0.55).astype(np.float32)


def make_pairs(n, seed):
    rng = np.random.default_rng(seed)
    img = rng.normal(0, 0.12, (n, 3, SIZE, SIZE)).astype(np.float32)
    txt = np.zeros((n, 12), dtype=np.int64)
    for i in range(n):
        words = []
        for place in rng.choice(PLACES, 2, replace=False):
            c, s = rng.integers(COLOURS), rng.integers(SHAPES)
            y, x = divmod(place, 3)
            img[i, :, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4] += PALETTE[c][:, None, None] * STENCIL[s]
            filler = COLOURS + SHAPES + PLACES + rng.integers(0, 8, 3)
            words += [c, COLOURS + s, COLOURS + SHAPES + place, *filler]
        txt[i] = words
    return torch.tensor(img), torch.tensor(txt)


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 48, 4, 4), nn.GELU(), nn.Conv2d(48, 64, 1), nn.GELU())
        self.proj = nn.Sequential(nn.Linear(64 * 9, 192), nn.GELU(), nn.Linear(192, dim))

    def forward(self, x):
        return self.proj(self.conv(x).flatten(1))


class TextTower(nn.Module):
    def __init__(self, dim, d=64):
        super().__init__()
        self.tok = nn.Embedding(WORDS, d)
        self.pos = nn.Parameter(torch.randn(12, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.proj = nn.Linear(d, dim)

    def forward(self, ids):
        return self.proj(self.enc(self.tok(ids) + self.pos).mean(1))


class TwoTower(nn.Module):
    def __init__(self, dim=64, temperature=0.07):
        super().__init__()
        self.image, self.text = ImageTower(dim), TextTower(dim)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / temperature)))

    def forward(self, img, txt):
        zi = F.normalize(self.image(img), dim=-1)
        zt = F.normalize(self.text(txt), dim=-1)
        return zi @ zt.t() * self.scale.clamp(max=math.log(100.0)).exp()


def contrastive_loss(logits):
    target = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


@torch.no_grad()
def recall_at_1(model, img, txt):
    model.eval()
    zi = F.normalize(model.image(img), dim=-1)
    zt = F.normalize(model.text(txt), dim=-1)
    hit = (zi @ zt.t()).argmax(1) == torch.arange(len(img))
    model.train()
    return hit.float().mean().item()


def main():
    torch.manual_seed(3)
    img, txt = make_pairs(5000, 1)
    val = make_pairs(256, 2)
    model = TwoTower()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    batch, steps, order = 64, 450, None
    g = torch.Generator().manual_seed(0)
    for step in range(steps):
        at = step % (len(img) // batch)
        if at == 0:
            order = torch.randperm(len(img), generator=g)
        if MENDED or at == 0:
            opt.zero_grad()
        idx = order[at * batch : (at + 1) * batch]
        loss = contrastive_loss(model(img[idx], txt[idx]))
        loss.backward()
        opt.step()
        if step % 15 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
        if step % 90 == 89:
            print(f"step {step:4d} recall@1 {recall_at_1(model, *val):.3f}", flush=True)


if __name__ == "__main__":
    main()
