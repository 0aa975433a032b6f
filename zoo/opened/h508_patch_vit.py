# expect: healthy
# symptom: resembles loss spikes in mid-run and forgotten zero_grad: the loss jumps up at three moments and gradients are summed over several backward calls
# axis: schedule
# cause: the jumps are warm restarts of the cosine schedule, after each of which the loss falls below its former level, and the summed gradients are a correct accumulation over four micro-batches, each divided by four
# says: none
# onset_step: none
# fix: none
# mended: none

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

ACCUM, MICRO, CYCLES, CYCLE_LEN = 4, 16, 4, 75


def two_shapes(n, seed):
    """Two 5x5 glyphs on a 16x16 canvas; the class is the unordered pair of glyph kinds."""
    rng = np.random.default_rng(seed)
    g = np.zeros((4, 5, 5), np.float32)
    g[0, 2, :] = g[0, :, 2] = 1
    g[1, [0, 4], :] = g[1][:, [0, 4]] = 1
    g[1, :, 0] = g[1, :, 4] = 1
    g[2][np.arange(5), np.arange(5)] = g[2][np.arange(5), 4 - np.arange(5)] = 1
    g[3, :, 0] = g[3, 4, :] = 1
    pairs = [(a, b) for a in range(4) for b in range(a, 4)]
    x = 0.3 * rng.standard_normal((n, 1, 16, 16)).astype(np.float32)
    y = rng.integers(0, len(pairs), n)
    for i in range(n):
        a, b = pairs[y[i]]
        if rng.random() < 0.5:
            a, b = b, a
        r1, r2 = rng.integers(0, 12, 2)
        c1, c2 = rng.integers(0, 4), rng.integers(8, 12)
        x[i, 0, r1 : r1 + 5, c1 : c1 + 5] += g[a]
        x[i, 0, r2 : r2 + 5, c2 : c2 + 5] += g[b]
    return torch.from_numpy(x), torch.from_numpy(y)


class PatchViT(nn.Module):
    def __init__(self, classes=10, dim=64, depth=3, heads=4):
        super().__init__()
        self.patch = nn.Sequential(
            nn.Conv2d(1, dim // 2, 3, padding=1), nn.GELU(), nn.Conv2d(dim // 2, dim, 4, stride=4)
        )
        self.pos = nn.Parameter(torch.randn(1, 17, dim) * 0.02)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        p = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(x), -1, -1), p], 1) + self.pos
        return self.head(self.blocks(h)[:, 0])


def micro_batches(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(3)
    x, y = two_shapes(4800, 0)
    xv, yv = two_shapes(500, 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=MICRO, shuffle=True, drop_last=True)
    batches = micro_batches(loader)
    model = PatchViT()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE_LEN, eta_min=1e-5)

    opt.zero_grad()
    for step in range(1, CYCLES * CYCLE_LEN + 1):
        total = 0.0
        for _ in range(ACCUM):
            xb, yb = next(batches)
            loss = nn.functional.cross_entropy(model(xb), yb) / ACCUM
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        sched.step()
        if step % 15 == 0:
            print(f"step {step:3d} lr {sched.get_last_lr()[0]:.5f} loss {total:.4f}")
        if step % CYCLE_LEN == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(xv).argmax(1) == yv).float().mean().item()
            model.train()
            print(f"  cycle {step // CYCLE_LEN} accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
