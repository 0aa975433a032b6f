# expect: healthy
# symptom: half of the networks never get a gradient and are in no optimizer, the targets are detached, there are no negatives, the loss stops far above zero
# axis: none
# mended: none
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)
rng = np.random.default_rng(12)

CLASSES, CH, LENGTH, STEPS, BATCH = 8, 3, 64, 400, 96


def motion_windows(n):
    """Three-axis accelerometer windows of eight activities, no labels needed for pre-training."""
    y = rng.integers(0, CLASSES, n)
    g = np.random.default_rng(1)
    freq, amp, ph0 = g.uniform(2, 9, (CLASSES, CH)), g.uniform(0.4, 1.5, (CLASSES, CH)), g.uniform(0, 6, (CLASSES, CH))
    t = np.arange(LENGTH) / LENGTH
    shift = rng.uniform(0, 1, (n, 1, 1))
    x = amp[y][..., None] * np.sin(2 * np.pi * freq[y][..., None] * (t + shift) + ph0[y][..., None])
    x = x + 0.6 * rng.normal(size=x.shape)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def augment(x):
    n = len(x)
    x = x * (1 + 0.2 * torch.randn(n, 1, 1)) + 0.3 * torch.randn_like(x)
    x = torch.roll(x, int(torch.randint(0, LENGTH, (1,))), dims=2)
    start = torch.randint(0, LENGTH - 12, (n, 1))
    pos = torch.arange(LENGTH)[None]
    keep = ~((pos >= start) & (pos < start + 12))
    return x * keep[:, None]


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(CH, 32, 7, stride=2, padding=3),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Conv1d(32, d, 5, stride=2, padding=2),
            nn.BatchNorm1d(d),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.conv(x)


class BYOL(nn.Module):
    def __init__(self, tau=0.98):
        super().__init__()
        self.online = nn.Sequential(Encoder(), mlp(64, 128, 48))
        self.predictor = mlp(48, 128, 48)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.tau = tau

    def loss(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return 4 - 2 * (F.cosine_similarity(pa, tb).mean() + F.cosine_similarity(pb, ta).mean())

    @torch.no_grad()
    def move_target(self):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - self.tau)


@torch.no_grad()
def knn_accuracy(enc, xa, ya, xb, yb):
    enc.eval()
    fa, fb = F.normalize(enc(xa)), F.normalize(enc(xb))
    enc.train()
    near = ya[(fb @ fa.T).topk(5, 1).indices]
    return (near.mode(1).values == yb).float().mean().item()


def main():
    xtr, ytr = motion_windows(3000)
    xte, yte = motion_windows(600)
    model = BYOL()
    opt = torch.optim.AdamW([*model.online.parameters(), *model.predictor.parameters()], lr=2e-3, weight_decay=1e-4)
    print(f"before training  knn acc {knn_accuracy(model.online[0], xtr, ytr, xte, yte):.3f}")
    for step in range(STEPS):
        x = xtr[torch.randint(0, len(xtr), (BATCH,))]
        loss = model.loss(augment(x), augment(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.move_target()
        if step % 40 == 0 or step == STEPS - 1:
            with torch.no_grad():
                std = F.normalize(model.online(xte)).std(0).mean().item()
            print(
                f"step {step:4d}  loss {loss.item():.4f}  feature std {std:.4f}  "
                f"knn acc {knn_accuracy(model.online[0], xtr, ytr, xte, yte):.3f}"
            )


if __name__ == "__main__":
    main()
