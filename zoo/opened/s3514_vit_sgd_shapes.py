# expect: sick
# symptom: the loss of the vision transformer jumps up and stays at chance level (or becomes nan) early on
# axis: optimizer
# cause: the parameter filter is a generator used up by the optimizer, so gradient clipping gets no parameters
# says: clip|generator|exhaust|iterator|used up|consumed
# onset_step: 0
# fix: turn the generator into a list so that clipping sees the parameters
# mended: the script applies that change if the environment has MENDED=1
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(4)


class Shapes(Dataset):
    """16x16 RGB pictures with one of six figures, random colour, place and noise."""

    KINDS = ["disc", "square", "cross", "ring", "bars", "checker"]

    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        yy, xx = np.mgrid[:16, :16]
        self.x, self.y = np.zeros((n, 3, 16, 16), np.float32), r.integers(0, 6, n)
        for i, k in enumerate(self.y):
            cy, cx, s = r.uniform(5, 11), r.uniform(5, 11), r.uniform(3, 5)
            dy, dx = yy - cy, xx - cx
            rad, box = np.hypot(dy, dx), np.maximum(abs(dy), abs(dx))
            m = [
                rad < s,
                box < s * 0.9,
                (np.minimum(abs(dy), abs(dx)) < 1.2) & (box < s),
                (rad < s) & (rad > s - 2),
                (box < s) & (yy % 3 == 0),
                (box < s) & ((yy + xx) % 2 == 0),
            ][k]
            fg = r.uniform(0.4, 1.0, 3)
            self.x[i] = fg[:, None, None] * m + r.normal(0, 0.12, (3, 16, 16))
        self.x = (self.x - 0.15) / 0.3

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class EncoderLayer(nn.Module):
    def __init__(self, d, heads, drop=0.0):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, dropout=drop, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, patch=4, d=64, depth=3, heads=4, classes=6):
        super().__init__()
        self.patchify = nn.Conv2d(3, d, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, 17, d) * 0.02)
        self.freqs = nn.Parameter(torch.ones(1, 1, d), requires_grad=False)
        self.layers = nn.Sequential(*[EncoderLayer(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, img):
        x = self.patchify(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos * self.freqs
        return self.head(self.norm(self.layers(x)).mean(1))


train_dl = DataLoader(Shapes(2400, 1), batch_size=32, shuffle=True, drop_last=True)
test_ds = Shapes(500, 2)
model = ViT()
params = filter(lambda p: p.requires_grad, model.parameters())
params = list(params) if MENDED else params
optimizer = torch.optim.SGD(params, lr=0.6, momentum=0.9, weight_decay=1e-4)
epochs = 4
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(train_dl))

step = 0
for epoch in range(epochs):
    model.train()
    for img, target in train_dl:
        loss = F.cross_entropy(model(img), target, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.25)
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    model.eval()
    with torch.no_grad():
        out = model(torch.from_numpy(test_ds.x).float())
        y = torch.from_numpy(test_ds.y)
        acc, val = (out.argmax(1) == y).float().mean().item(), F.cross_entropy(out, y).item()
    print(f"== epoch {epoch} test loss {val:.4f} accuracy {acc:.3f}", flush=True)
