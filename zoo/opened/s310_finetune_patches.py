# expect: sick
# symptom: fine-tuning goes well until the backbone is unfrozen at step 120; after it the loss climbs and never comes back
# axis: optimizer
# cause: the gradients of the backbone are never cleared, as only the optimizer of the head gets zero_grad, so they pile up
# says: zero_?\s?grad|grad\w*.{0,70}(accumulat\w+ (over|across|from|between|because|as|since|without)|accumulate\b|pile|piling|never (cleared|reset|zeroed|set to zero)|not (being )?(cleared|reset|zeroed)|stale|carried|add up|sum up|left over|leak|kept)|(accumulating|piling|stale|uncleared|leaking|left-?over|never clear\w*|not clear\w*|unzeroed).{0,40}grad
# onset_step: 121
# fix: call zero_grad on both optimizers
# mended: MENDED=1
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(14)
UNFREEZE_AT, TOTAL = 120, 420


def textures(n, kinds, seed, size=20):
    g = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    y = g.integers(0, kinds, n)
    angle = y * np.pi / kinds + g.normal(0, 0.12, n)
    freq = g.uniform(0.7, 1.1, n)
    phase = g.uniform(0, 6.28, n)
    arg = freq[:, None, None] * (np.cos(angle)[:, None, None] * xx + np.sin(angle)[:, None, None] * yy)
    img = np.sin(arg + phase[:, None, None]) + g.normal(0, 0.7, (n, size, size))
    return torch.tensor(img, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=s, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class Backbone(nn.Sequential):
    def __init__(self):
        super().__init__(conv(1, 16, 2), conv(16, 16), conv(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def pretrain(backbone):
    head = nn.Linear(32, 3)
    opt = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=3e-3)
    x, y = textures(1024, 3, seed=1)
    for i in range(0, 1024, 64):
        loss = F.cross_entropy(head(backbone(x[i : i + 64])), y[i : i + 64])
        opt.zero_grad()
        loss.backward()
        opt.step()
    backbone.zero_grad(set_to_none=True)


def finetune(backbone, kinds=8):
    x, y = textures(4000, kinds, seed=2)
    xv, yv = textures(400, kinds, seed=3)
    head = nn.Linear(32, kinds)
    head_opt = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
    body_opt = torch.optim.SGD(backbone.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for p in backbone.parameters():
        p.requires_grad_(False)
    for step in range(1, TOTAL + 1):
        if step == UNFREEZE_AT + 1:
            for p in backbone.parameters():
                p.requires_grad_(True)
        b = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(head(backbone(x[b])), y[b])
        head_opt.zero_grad()
        if os.environ.get("MENDED") == "1":
            body_opt.zero_grad()
        loss.backward()
        head_opt.step()
        if step > UNFREEZE_AT:
            body_opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
        if step % 100 == 0:
            with torch.no_grad():
                acc = (head(backbone(xv)).argmax(1) == yv).float().mean().item()
            print(f"   valid accuracy {acc:.3f}")


if __name__ == "__main__":
    body = Backbone()
    pretrain(body)
    finetune(body)
