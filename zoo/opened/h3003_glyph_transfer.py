# expect: healthy
# symptom: frozen layers without gradient, loss jumps between stages, as with a broken graph or forgetting
# axis: none
"""Pre-train a glyph CNN on source classes, then move it to new classes in two stages."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED, SIDE, BATCH = 31, 16, 32


def templates(n, seed):
    rng = np.random.default_rng(seed)
    out = np.zeros((n, SIDE, SIDE), dtype=np.float32)
    for k in range(n):
        p = rng.integers(3, SIDE - 3, 2)
        for _ in range(4):
            q = rng.integers(3, SIDE - 3, 2)
            for s in np.linspace(0, 1, 24):
                y, x = np.round(p + (q - p) * s).astype(int)
                out[k, y, x] = 1.0
            p = q
    return out


class Glyphs:
    def __init__(self, n_class, seed):
        self.t, self.rng = templates(n_class, seed), np.random.default_rng(seed + 1)

    def draw(self, n):
        y = self.rng.integers(0, len(self.t), n)
        x = np.stack([np.roll(self.t[c], self.rng.integers(-2, 3, 2), (0, 1)) for c in y])
        x = x + 0.3 * self.rng.standard_normal(x.shape)
        return torch.from_numpy(x.astype(np.float32))[:, None], torch.from_numpy(y)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.high(self.low(x)).flatten(1)


def hold(module):
    module.requires_grad_(False)
    module.eval()


def run_stage(name, backbone, head, opt, data, steps, start):
    for k in range(1, steps + 1):
        x, y = data.draw(BATCH)
        loss = F.cross_entropy(head(backbone(x)), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if k % 20 == 0 or k == 1:
            print(f"{name} step {start + k} loss {loss.item():.4f}")
    return start + steps


@torch.no_grad()
def accuracy(backbone, head, x, y):
    modes = [(m, m.training) for m in backbone.modules()]
    backbone.eval()
    hit = (head(backbone(x)).argmax(1) == y).float().mean().item()
    for m, was in modes:
        m.training = was
    return hit


def main():
    torch.manual_seed(SEED)
    source, target = Glyphs(12, 100), Glyphs(8, 200)
    sx, sy = source.draw(400)
    tx, ty = target.draw(400)
    backbone, head = Backbone(), nn.Linear(512, 12)
    opt = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=2e-3)
    step = run_stage("source", backbone, head, opt, source, 160, 0)
    print(f"source accuracy {accuracy(backbone, head, sx, sy):.3f}")

    hold(backbone)
    head = nn.Linear(512, 8)
    nn.init.zeros_(head.weight)
    opt = torch.optim.Adam(head.parameters(), lr=2e-3)
    step = run_stage("head", backbone, head, opt, target, 80, step)
    print(f"target accuracy, backbone held {accuracy(backbone, head, tx, ty):.3f}")

    backbone.high.requires_grad_(True)
    backbone.high.train()
    opt.add_param_group({"params": list(backbone.high.parameters()), "lr": 3e-4})
    step = run_stage("tune", backbone, head, opt, target, 120, step)
    print(f"final target accuracy {accuracy(backbone, head, tx, ty):.3f}")


if __name__ == "__main__":
    main()
