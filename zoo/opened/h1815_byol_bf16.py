# expect: healthy
# symptom: the target network is kept under no_grad, out of the optimizer and has no loss of its own, there are no negatives, bfloat16 autocast runs without a gradient scaler
# axis: none
# mended: none
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(20)

SIZE, CLASSES, BATCH, STEPS = 16, 6, 32, 250
BASE_MOMENTUM = 0.97


def patterns(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    y = rng.integers(0, CLASSES, n)
    ang = (y % 3) * np.pi / 3 + rng.normal(0, 0.08, n)
    freq = np.where(y < 3, 0.7, 1.4)
    u = xx * np.cos(ang)[:, None, None] + yy * np.sin(ang)[:, None, None]
    img = np.sin(freq[:, None, None] * u + rng.uniform(0, 6.3, n)[:, None, None])
    img = img + rng.normal(0, 0.8, img.shape)
    return torch.from_numpy(img[:, None].astype(np.float32)), torch.from_numpy(y)


def view(x):
    n = len(x)
    x = torch.roll(x, tuple(torch.randint(0, SIZE, (2,)).tolist()), (2, 3))
    gain = 0.5 + torch.rand(n, 1, 1, 1)
    shift = 0.4 * torch.randn(n, 1, 1, 1)
    x = x * gain + shift + 0.3 * torch.randn_like(x)
    hole = torch.randint(0, SIZE - 5, (2,)).tolist()
    x = x.clone()
    x[:, :, hole[0] : hole[0] + 5, hole[1] : hole[1] + 5] = 0
    return x


def mlp(i, hidden, o):
    return nn.Sequential(nn.Linear(i, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, o))


class Encoder(nn.Module):
    def __init__(self, w=12, proj=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, w, 3, 1, 1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, 2, 1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
        )
        self.project = mlp(2 * w, 96, proj)

    def features(self, x):
        return self.conv(x).mean((2, 3))

    def forward(self, x):
        return self.project(self.features(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.predictor = mlp(32, 96, 32)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, a, b):
        p1, p2 = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            z1, z2 = self.target(a), self.target(b)
        sim = F.cosine_similarity(p1.float(), z2.float()) + F.cosine_similarity(p2.float(), z1.float())
        return (2 - sim).mean()

    @torch.no_grad()
    def update_target(self, step):
        m = 1 - (1 - BASE_MOMENTUM) * (math.cos(math.pi * step / STEPS) + 1) / 2
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - m)


@torch.no_grad()
def probe(encoder, train, valid):
    """Nearest class mean on frozen features."""
    encoder.eval()
    f, fv = encoder.features(train[0]), encoder.features(valid[0])
    encoder.train()
    f, fv = (f - f.mean(0)) / (f.std(0) + 1e-5), (fv - f.mean(0)) / (f.std(0) + 1e-5)
    means = torch.stack([f[train[1] == c].mean(0) for c in range(CLASSES)])
    return (torch.cdist(fv, means).argmin(1) == valid[1]).float().mean().item(), f.std(0).mean().item()


def main():
    train, valid = patterns(1500, 1), patterns(400, 2)
    model = BYOL()
    params = [*model.online.parameters(), *model.predictor.parameters()]
    opt = torch.optim.AdamW(params, lr=2e-3, weight_decay=1e-4)
    print("probe before training %.3f" % probe(model.online, train, valid)[0])
    t0 = time.time()
    for step in range(STEPS):
        x = train[0][torch.randint(0, len(train[0]), (BATCH,))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(view(x), view(x))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        model.update_target(step)
        if step % 25 == 0:
            with torch.no_grad():
                spread = F.normalize(model.online(x), dim=1).std(0).mean().item()
            print(f"step {step:4d} loss {loss.item():.4f} spread {spread:.3f} ({time.time() - t0:.1f}s)")
    print("probe after training %.3f" % probe(model.online, train, valid)[0])


if __name__ == "__main__":
    main()
