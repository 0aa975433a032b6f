# expect: sick
# symptom: the loss stalls high (about 1.4) and rises again, the accuracy stays low, weights shrink
# axis: optimizer
# cause: weight decay 0.1 meant for AdamW is given to plain Adam, where it is an L2 term that swamps the gradient
# says: (weight.?decay|\bl2\b|decoupl|adamw).*(adam|coupl|large|strong|high|swamp|domin|l2|0\.1|shrink|decay)
# onset_step: 0
# fix: use AdamW (decoupled weight decay) with the same numbers
# mended: the script applies that change if the environment has MENDED=1
"""Small vision transformer on rendered glyph images (8 classes), config-driven like our larger runs."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CONFIG = {
    "seed": 2,
    "image": 16,
    "patch": 4,
    "dim": 64,
    "depth": 2,
    "heads": 4,
    "classes": 8,
    "batch": 32,
    "steps": 350,
    "warmup": 30,
    "optim": {"name": "AdamW" if MENDED else "Adam", "lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1},
}


def render(n, gen):
    """Bars, boxes and diagonals at random places, with noise."""
    size = CONFIG["image"]
    img = torch.zeros(n, 1, size, size)
    y = torch.randint(0, CONFIG["classes"], (n,), generator=gen)
    off = torch.randint(0, 7, (n, 2), generator=gen)
    for i in range(n):
        r, c = off[i].tolist()
        g = torch.zeros(8, 8)
        k = int(y[i])
        if k == 0:
            g[3:5, :] = 1
        elif k == 1:
            g[:, 3:5] = 1
        elif k == 2:
            g.fill_diagonal_(1)
        elif k == 3:
            g.fill_diagonal_(1)
            g = g.flip(1)
        elif k == 4:
            g[0, :], g[-1, :], g[:, 0], g[:, -1] = 1, 1, 1, 1
        elif k == 5:
            g[2:6, 2:6] = 1
        elif k == 6:
            g[3:5, :], g[:, 3:5] = 1, 1
        else:
            g[::2, ::2] = 1
        img[i, 0, r : r + 8, c : c + 8] = g
    img += 0.15 * torch.randn(img.shape, generator=gen)
    return (img - 0.12) / 0.35, y


class ViT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        n = (cfg["image"] // cfg["patch"]) ** 2
        self.patch = nn.Conv2d(1, cfg["dim"], cfg["patch"], stride=cfg["patch"])
        self.cls = nn.Parameter(torch.zeros(1, 1, cfg["dim"]))
        self.pos = nn.Parameter(torch.randn(1, n + 1, cfg["dim"]) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg["dim"], cfg["heads"], 2 * cfg["dim"], dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, cfg["depth"], norm=nn.LayerNorm(cfg["dim"]), enable_nested_tensor=False
        )
        self.head = nn.Linear(cfg["dim"], cfg["classes"])

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.encoder(x)[:, 0])


def build_optimizer(model, cfg):
    kwargs = {k: v for k, v in cfg.items() if k != "name"}
    return getattr(torch.optim, cfg["name"])(model.parameters(), **kwargs)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = sum((model(x).argmax(-1) == y).sum().item() for x, y in loader)
    model.train()
    return hit / len(loader.dataset)


def main():
    torch.manual_seed(CONFIG["seed"])
    gen = torch.Generator().manual_seed(CONFIG["seed"])
    train = DataLoader(TensorDataset(*render(2560, gen)), CONFIG["batch"], shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(*render(400, gen)), 200)
    model = ViT(CONFIG)
    opt = build_optimizer(model, CONFIG["optim"])
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / CONFIG["warmup"]))
    step, total, window = 0, CONFIG["steps"], []
    while step < total:
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            window.append(loss.item())
            step += 1
            if step % 25 == 0:
                print(f"step {step:4d} loss {sum(window[-25:]) / 25:.4f}")
            if step == total:
                break
    print(f"final loss {sum(window[-25:]) / 25:.4f} val acc {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
