# expect: healthy
# symptom: half of the networks (the target) gets no gradient and is in no optimizer, the loss has neither labels nor negatives, and it is negative
# axis: none
# mended: none
import argparse
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def gratings(n, size, seed):
    """Images of six textures (orientation x frequency)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, n)
    yy, xx = np.mgrid[:size, :size]
    ang = (y % 3 * math.pi / 3 + rng.normal(0, 0.2, n))[:, None, None]
    freq = np.where(y < 3, 0.12, 0.16)[:, None, None]
    phase = rng.uniform(0, 2 * math.pi, (n, 1, 1))
    x = np.sin(2 * math.pi * freq * (xx * np.cos(ang) + yy * np.sin(ang)) + phase)
    return torch.from_numpy(x.astype(np.float32))[:, None], torch.from_numpy(y)


class TwoViews(Dataset):
    def __init__(self, x, crop):
        self.x, self.crop = x, crop

    def __len__(self):
        return len(self.x)

    def view(self, img):
        m = img.size(-1) - self.crop
        i, j = torch.randint(0, m + 1, (2,)).tolist()
        v = img[:, i : i + self.crop, j : j + self.crop]
        v = v * torch.empty(1).uniform_(0.6, 1.4) + torch.empty(1).uniform_(-0.3, 0.3)
        return v + 0.3 * torch.randn_like(v)

    def __getitem__(self, i):
        return self.view(self.x[i]), self.view(self.x[i])


def mlp_head(d_in, hidden, d_out):
    return nn.Sequential(nn.Linear(d_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, d_out))


class Encoder(nn.Module):
    def __init__(self, dim=32, proj=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2, 2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, dim, 3, 2, 1),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = mlp_head(dim, 64, proj)

    def forward(self, x):
        return self.projector(self.conv(x))


class BYOL(nn.Module):
    def __init__(self, base_tau):
        super().__init__()
        self.online = Encoder()
        self.predictor = mlp_head(32, 64, 32)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.base_tau = base_tau

    def forward(self, v1, v2):
        p1, p2 = self.predictor(self.online(v1)), self.predictor(self.online(v2))
        with torch.no_grad():
            z1, z2 = self.target(v1), self.target(v2)
        return -0.5 * (F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean())

    @torch.no_grad()
    def update_target(self, progress):
        tau = 1 - (1 - self.base_tau) * (math.cos(math.pi * progress) + 1) / 2
        for a, b in zip(self.online.parameters(), self.target.parameters()):
            b.lerp_(a, 1 - tau)


def linear_probe(model, x_train, y_train, x_test, y_test):
    """Ridge regression on the frozen features."""
    model.eval()
    with torch.no_grad():
        f, g = model.online.conv(x_train), model.online.conv(x_test)
    model.train()
    mu, sd = f.mean(0), f.std(0) + 1e-5
    f, g = (f - mu) / sd, (g - mu) / sd
    w = torch.linalg.solve(f.T @ f + torch.eye(f.size(1)), f.T @ (F.one_hot(y_train, 6).float() - 1 / 6))
    return ((g @ w).argmax(1) == y_test).float().mean().item()


def main(args):
    torch.manual_seed(args.seed)
    x, y = gratings(args.n_train, 20, 1)
    xt, yt = gratings(400, 20, 2)
    xt = xt + 0.6 * torch.randn(xt.shape, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TwoViews(x, 16), args.batch, shuffle=True, drop_last=True)
    model = BYOL(args.tau)
    params = list(model.online.parameters()) + list(model.predictor.parameters())
    opt = torch.optim.AdamW(params, lr=args.lr, weight_decay=1e-4)
    total, step = args.epochs * len(loader), 0
    for epoch in range(args.epochs):
        for v1, v2 in loader:
            loss = model(v1, v2)
            opt.zero_grad()
            loss.backward()
            opt.step()
            model.update_target(step / total)
            if step % 10 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        with torch.no_grad():
            z = F.normalize(model.online(x[:256]), dim=1)
        acc = linear_probe(model, x[:400], y[:400], xt, yt)
        print(f"epoch {epoch} probe acc {acc:.3f} feature std {z.std(0).mean():.4f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--n-train", type=int, default=1536)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--tau", type=float, default=0.97)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
