# expect: sick
# symptom: the ViT learns for about two epochs and then the loss stays where it is for the rest of the run, far from what the same model reaches elsewhere
# axis: optimizer
# cause: the scheduler (ExponentialLR, gamma meant per epoch) is stepped after every batch, so the learning rate decays to almost nothing within the first few epochs
# says: (schedul\w*|gamma|decay\w*|exponentiallr|step\(\)).{0,100}(per[- ]?(batch|step|iteration)|(every|each) (batch|step|iteration|optimi[sz]er step)|too (fast|quick|early|often|soon)|inside the (batch|inner))|(per[- ]?(batch|step|iteration)|(every|each) (batch|step|iteration)).{0,80}(schedul|gamma|decay)|(lr|learning[- ]rate).{0,80}(decay\w*|collaps\w*|vanish\w*|drop\w*|shr[iau]nk\w*|fall\w*|fell|near|almost|close).{0,60}(zero|0\b|nothing|tiny|too (fast|early|quick|soon)|1e-|negligible|small)
# onset_step: 120
# fix: call scheduler.step() once per epoch (or choose gamma per step)
# mended: scheduler.step() is called once per epoch
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


def draw(kind, rng):
    img = rng.normal(0, 0.25, (24, 24))
    cy, cx, r = rng.integers(8, 16), rng.integers(8, 16), rng.integers(4, 8)
    yy, xx = np.mgrid[:24, :24]
    dy, dx = yy - cy, xx - cx
    box = (abs(dy) <= r) & (abs(dx) <= r)
    shapes = [
        box & (np.maximum(abs(dy), abs(dx)) >= r - 1),
        abs(np.hypot(dy, dx) - r) < 0.9,
        box & ((abs(dy) < 1) | (abs(dx) < 1)),
        box & ((abs(dy - dx) < 1) | (abs(dy + dx) < 1)),
        box & (dy % 3 == 0),
        box & (dx % 3 == 0),
    ]
    img[shapes[kind]] += rng.uniform(0.7, 1.3)
    return img


def make_split(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, n)
    x = np.stack([draw(k, rng) for k in y]).astype(np.float32)[:, None]
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class ViT(nn.Module):
    def __init__(self, img=24, patch=4, dim=32, depth=2, heads=2, n_classes=6):
        super().__init__()
        n = (img // patch) ** 2
        self.embed = nn.Conv2d(1, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, n + 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.encoder(x)[:, 0]))


def train_one_epoch(model, loader, criterion, optimizer, scheduler, epoch, log_every):
    model.train()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not MENDED:
            scheduler.step()
        if i % log_every == 0:
            print(f"epoch {epoch:2d} [{i:3d}/{len(loader)}] loss {loss.item():.4f}", flush=True)
    if MENDED:
        scheduler.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def main(args):
    torch.manual_seed(args.seed)
    train_loader = DataLoader(make_split(args.n_train, 1), batch_size=args.batch, shuffle=True)
    val_loader = DataLoader(make_split(400, 2), batch_size=200)
    model = ViT()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=args.gamma)
    for epoch in range(args.epochs):
        train_one_epoch(model, train_loader, criterion, optimizer, scheduler, epoch, 10)
        print(f"== epoch {epoch:2d} val acc {evaluate(model, val_loader):.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--n-train", type=int, default=1280)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
