# expect: sick
# symptom: the contrastive loss levels off high and retrieval stays poor; nothing explodes
# axis: harness
# cause: Each rank compares its local images with the texts gathered from all ranks but uses labels arange(local_batch) without the offset rank*local_batch, so every rank but the first is taught to match its images with rank 0's texts.
# says: (rank|offset|shard|gather|arange|worker|replica).{0,250}(label|target|positive|diagonal|indices|wrong (text|image|pair))|(label|target|positive|diagonal|indices).{0,250}(rank|offset|shard|gather|arange|worker|replica)
# onset_step: 1
# fix: labels = arange(local_batch) + rank * local_batch
# mended: yes
"""Image/caption contrastive pretraining on rendered attributes.

Data-parallel over WORLD shards, all run in this process one after another:
every shard encodes its slice, the other side's features are all-gathered and the
shards' gradients are averaged before the optimizer step.
"""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)

WORLD = 4
LOCAL = 24
STEPS = 450
WORDS = [
    "<pad>",
    "a",
    "the",
    "small",
    "large",
    "red",
    "green",
    "blue",
    "yellow",
    "square",
    "disc",
    "bar",
    "ring",
    "left",
    "right",
    "top",
    "bottom",
    "at",
    "and",
    "of",
    "picture",
]
W = {w: i for i, w in enumerate(WORDS)}
COLOURS = {"red": (1, 0.1, 0.1), "green": (0.1, 1, 0.1), "blue": (0.1, 0.1, 1), "yellow": (1, 1, 0.1)}
SHAPES = ["square", "disc", "bar", "ring"]


def make_pairs(n, gen):
    px = 16
    yy, xx = torch.meshgrid(torch.arange(px), torch.arange(px), indexing="ij")
    imgs, caps = torch.zeros(n, 3, px, px), torch.zeros(n, 9, dtype=torch.long)
    r = lambda k: int(torch.randint(0, k, (1,), generator=gen))
    for i in range(n):
        col, shp, big = list(COLOURS)[r(4)], SHAPES[r(4)], r(2)
        h, v = r(2), r(2)
        cx, cy = 4 + 7 * h + r(2), 4 + 7 * v + r(2)
        rad = 4 if big else 2
        dx, dy = (xx - cx).abs(), (yy - cy).abs()
        d2 = dx**2 + dy**2
        m = {
            "square": torch.maximum(dx, dy) < rad,
            "disc": d2 <= rad**2,
            "bar": (dx < rad) & (dy < 1),
            "ring": (d2 <= rad**2) & (d2 >= (rad - 1) ** 2),
        }[shp]
        imgs[i] = m[None] * torch.tensor(COLOURS[col])[:, None, None]
        sent = [["a", "the"][r(2)], ["small", "large"][big], col, shp, "at", ["top", "bottom"][v], ["left", "right"][h]]
        if r(2):
            sent = ["picture", "of"] + sent
        caps[i, : len(sent)] = torch.tensor([W[w] for w in sent])
    imgs += 0.15 * torch.randn(imgs.shape, generator=gen)
    return imgs, caps


class ImageTower(nn.Module):
    def __init__(self, d):
        super().__init__()

        def unit(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(4, o), nn.ReLU())

        self.body = nn.Sequential(unit(3, 16, 2), unit(16, 32, 2), unit(32, 32, 1))
        self.proj = nn.Linear(32 * 16, d)

    def forward(self, x):
        return F.normalize(self.proj(self.body(x).flatten(1)), dim=-1)


class TextTower(nn.Module):
    def __init__(self, d, width=48):
        super().__init__()
        self.tok = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.pos = nn.Parameter(0.02 * torch.randn(9, width))
        self.enc = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.proj = nn.Linear(width, d)

    def forward(self, ids):
        pad = ids.eq(0)
        h = self.enc(self.tok(ids) + self.pos, src_key_padding_mask=pad)
        h = (h * ~pad[..., None]).sum(1) / (~pad).sum(1, keepdim=True)
        return F.normalize(self.proj(h), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.image, self.text = ImageTower(d), TextTower(d)
        self.log_scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, img, cap):
        return self.image(img), self.text(cap), self.log_scale.exp().clamp(max=60)


def shard_loss(rank, img_all, txt_all, scale):
    sl = slice(rank * LOCAL, (rank + 1) * LOCAL)
    img, txt = img_all[sl], txt_all[sl]
    labels = torch.arange(LOCAL)
    if os.environ.get("MENDED") == "1":
        labels = labels + rank * LOCAL
    li = scale * img @ txt_all.t()
    lt = scale * txt @ img_all.t()
    return 0.5 * (F.cross_entropy(li, labels) + F.cross_entropy(lt, labels))


@torch.no_grad()
def recall(model, img, cap, block=64):
    hit = 0
    for i in range(0, len(img), block):
        a, b, _ = model(img[i : i + block], cap[i : i + block])
        hit += ((a @ b.t()).argmax(1) == torch.arange(len(a))).sum().item()
    return hit / len(img)


def main():
    gen = torch.Generator().manual_seed(4)
    img, cap = make_pairs(3000, gen)
    vimg, vcap = make_pairs(512, gen)
    model = TwoTower()
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, betas=(0.9, 0.98), weight_decay=0.05)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1.5e-3, total_steps=STEPS, pct_start=0.1)
    for it in range(1, STEPS + 1):
        pick = torch.randint(0, len(img), (WORLD * LOCAL,))
        fi, ft, scale = model(img[pick], cap[pick])
        losses = [shard_loss(r, fi, ft, scale) for r in range(WORLD)]
        loss = torch.stack(losses).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if it % 25 == 0:
            print(f"it {it:4d} | loss {loss.item():.3f} | scale {scale.item():.1f}")
        if it % 150 == 0:
            model.eval()
            print(f"         R@1 in blocks of 64: {recall(model, vimg, vcap):.3f}")
            model.train()


if __name__ == "__main__":
    main()
