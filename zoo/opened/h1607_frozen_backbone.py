# expect: healthy
# symptom: in the second stage the backbone has no gradients, stays in eval mode during training, and the optimizer holds a small part of the parameters only
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(37)

SIZE, BATCH = 24, 32


def shapes(n, g):
    """A disc, square or cross somewhere; also returns where it is and how big."""
    kind = torch.randint(0, 3, (n,), generator=g)
    c = 6 + 12 * torch.rand(n, 2, generator=g)
    r = 2.5 + 3 * torch.rand(n, generator=g)
    u = torch.arange(SIZE).float()
    yy, xx = torch.meshgrid(u, u, indexing="ij")
    dx, dy = (xx - c[:, 0, None, None]).abs(), (yy - c[:, 1, None, None]).abs()
    rr = r[:, None, None]
    disc, square = (dx**2 + dy**2 < rr**2), (torch.maximum(dx, dy) < 0.85 * rr)
    cross = ((dx < 1) | (dy < 1)) & (torch.maximum(dx, dy) < rr)
    img = torch.where((kind == 0)[:, None, None], disc, torch.where((kind == 1)[:, None, None], square, cross)).float()
    img = img + 0.35 * torch.randn(img.shape, generator=g)
    box = torch.cat([c / SIZE, r[:, None] / SIZE], 1)
    return img[:, None], kind, box


class Backbone(nn.Module):
    def __init__(self, w=20):
        super().__init__()

        def conv(a, b, s):
            return nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

        self.net = nn.Sequential(conv(1, w, 1), conv(w, w, 2), conv(w, 2 * w, 1), conv(2 * w, 2 * w, 2))

    def forward(self, x):
        return self.net(x)


class Detector(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.head = nn.Sequential(
            nn.Conv2d(40, 24, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 36, 64), nn.ReLU(), nn.Linear(64, 3)
        )

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


def stage_one(g, steps=200):
    body = Backbone()
    head = nn.Linear(40, 3)
    opt = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=3e-3)
    for step in range(steps):
        x, kind, _ = shapes(BATCH, g)
        loss = F.cross_entropy(head(body(x).mean((2, 3))), kind)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"stage 1 step {step:4d} loss {loss.item():.4f}", flush=True)
    return body


def stage_two(body, g, steps=350):
    model = Detector(body)
    opt = torch.optim.AdamW(model.head.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    n_all = sum(p.numel() for p in model.parameters())
    n_opt = sum(p.numel() for q in opt.param_groups for p in q["params"])
    print(f"stage 2 trains {n_opt} of {n_all} parameters")
    model.train()
    run, t0 = 0.0, time.time()
    for step in range(steps):
        x, _, box = shapes(BATCH, g)
        loss = F.smooth_l1_loss(model(x), box, beta=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 10 == 0:
            print(f"stage 2 step {step + 1:4d} loss {run / 10:.5f} ({time.time() - t0:.1f}s)", flush=True)
            run = 0.0
    model.eval()
    x, _, box = shapes(500, g)
    with torch.no_grad():
        err = (model(x) - box).abs().mean(0) * SIZE
    print("mean error in pixels (x, y, radius):", [round(e, 2) for e in err.tolist()])


if __name__ == "__main__":
    gen = torch.Generator().manual_seed(1)
    stage_two(stage_one(gen), gen)
