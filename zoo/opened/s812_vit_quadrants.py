# expect: sick
# symptom: validation accuracy stays at the level of the linear head; nothing improves after the backbone is unfrozen
# axis: optimizer
# cause: the optimizer was built from the parameters that required grad while the backbone was frozen, so the backbone unfrozen later is in no param group and never moves
# says: (optimi[sz]er|param(eter)?.?groups?)[\s\S]{0,80}(lack|miss|without|never (got|received|saw|include|hold|contain)|not (in|include|contain|hold|know|cover|given|added)|does ?n.t (include|hold|contain|know|cover)|only (the )?(head|classifier))|(not|never|missing|absent|left out|in no|outside)[\s\S]{0,40}(optimi[sz]er|param(eter)?.?groups?)|unfro?(ze|zen|freez\w*)[\s\S]{0,60}(optimi[sz]er|param.?group|never (updat|mov|chang|train))|add_param_group
# onset_step: 61
# fix: give the optimizer all parameters from the start (frozen ones are skipped while their grad is None) or call add_param_group on unfreezing
# mended: with MENDED=1 the optimizer is built from model.parameters()
import logging
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("vit")

CFG = dict(
    size=24,
    patch=6,
    dim=48,
    depth=2,
    heads=4,
    classes=6,
    batch=48,
    lr=1.5e-3,
    weight_decay=0.01,
    head_steps=60,
    total_steps=400,
)


def draw(n, g):
    """Two marks (a cross and a square) on noise; the label tells the relation of their places."""
    s = CFG["size"]
    img = 0.3 * torch.randn(n, 1, s, s, generator=g)
    pos = torch.stack([torch.randperm(4, generator=g)[:2] for _ in range(n)])
    lut = {(0, 1): 0, (0, 2): 1, (0, 3): 2, (1, 2): 3, (1, 3): 4, (2, 3): 5}
    y = torch.tensor([lut[tuple(sorted(p))] for p in pos.tolist()])
    half = s // 2
    jit = torch.randint(1, half - 6, (n, 2, 2), generator=g)
    for i in range(n):
        for k in range(2):
            q = pos[i, k].item()
            r = (q // 2) * half + jit[i, k, 0].item()
            c = (q % 2) * half + jit[i, k, 1].item()
            if k == 0:
                img[i, 0, r + 2, c : c + 5] += 1.0
                img[i, 0, r : r + 5, c + 2] += 1.0
            else:
                img[i, 0, r : r + 5, c] += 1.0
                img[i, 0, r : r + 5, c + 4] += 1.0
                img[i, 0, r, c : c + 5] += 1.0
    return img, y


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class Backbone(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Conv2d(1, c["dim"], c["patch"], stride=c["patch"])
        n = (c["size"] // c["patch"]) ** 2
        self.cls = nn.Parameter(torch.zeros(1, 1, c["dim"]))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, c["dim"]))
        self.blocks = nn.Sequential(*[Block(c["dim"], c["heads"]) for _ in range(c["depth"])])
        self.norm = nn.LayerNorm(c["dim"])

    def forward(self, x):
        t = self.embed(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(t), -1, -1), t], 1) + self.pos
        return self.norm(self.blocks(t))[:, 0]


class ViT(nn.Module):
    def __init__(self, c, weights=None):
        super().__init__()
        self.backbone = Backbone(c)
        self.head = nn.Linear(c["dim"], c["classes"])
        if weights and os.path.exists(weights):
            self.backbone.load_state_dict(torch.load(weights))

    def forward(self, x):
        return self.head(self.backbone(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    hit = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x.split(256), y.split(256)))
    model.train()
    return hit / len(y)


def main():
    torch.manual_seed(7)
    g = torch.Generator().manual_seed(7)
    xtr, ytr = draw(4000, g)
    xva, yva = draw(600, g)

    model = ViT(CFG, weights=os.environ.get("VIT_WEIGHTS"))
    set_trainable(model.backbone, False)
    params = [p for p in model.parameters() if p.requires_grad]
    if os.environ.get("MENDED") == "1":
        params = model.parameters()
    opt = torch.optim.AdamW(params, lr=CFG["lr"], weight_decay=CFG["weight_decay"])

    model.train()
    for step in range(1, CFG["total_steps"] + 1):
        if step == CFG["head_steps"] + 1:
            log.info("head is warm, unfreezing the backbone")
            set_trainable(model.backbone, True)
        idx = torch.randint(0, len(xtr), (CFG["batch"],), generator=g)
        loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            log.info("step %d loss %.4f val_acc %.3f", step, loss.item(), accuracy(model, xva, yva))


if __name__ == "__main__":
    main()
