# expect: healthy
# symptom: the training loss never gets below about 0.8 and jumps about, the training accuracy looks poor: it looks like a model that underfits or has wrong labels
# axis: data
# cause: healthy: mixup, SpecAugment masks and label smoothing put a high floor under the training loss; the validation accuracy on clean clips climbs to near 1
# says: none
# onset_step: none
# fix: none
# mended: none
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
CLASSES, RATE = 6, 4000


def clip(label, rng, n=2000):
    t = np.arange(n) / RATE
    f = 250 + 220 * label + rng.uniform(-50, 50)
    vib = 1 + 0.01 * np.sin(2 * np.pi * rng.uniform(4, 7) * t)
    s = sum(np.sin(2 * np.pi * f * k * np.cumsum(vib) / RATE) / k for k in (1, 2, 3) if f * k < RATE / 2)
    return (0.5 * s + 1.6 * rng.standard_normal(n)).astype(np.float32)


def log_spectrogram(wav):
    spec = torch.stft(wav, 128, 64, window=torch.hann_window(128), return_complex=True).abs().pow(2)
    spec = torch.log(spec[:64] + 1e-4)
    return ((spec - spec.mean()) / spec.std())[None]


class Instruments(Dataset):
    def __init__(self, n, seed, train):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, n)
        self.feats = [log_spectrogram(torch.from_numpy(clip(c, rng))) for c in self.labels]
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = self.feats[i].clone()
        if self.train:
            f, t = torch.randint(0, 56, (1,)).item(), torch.randint(0, 26, (1,)).item()
            x[:, f : f + 8] = 0
            x[:, :, t : t + 6] = 0
        return x, int(self.labels[i])


class AudioCNN(nn.Module):
    def __init__(self, w=12):
        super().__init__()

        def block(i, o):
            return [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

        self.body = nn.Sequential(*block(1, w), *block(w, 2 * w), *block(2 * w, 4 * w))
        self.head = nn.Linear(4 * w * 8, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(3).flatten(1))


def mixup(x, y, alpha):
    lam = np.random.beta(alpha, alpha)
    perm = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


@torch.no_grad()
def validate(model, loader):
    model.eval()
    good = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return good / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--alpha", type=float, default=1.0)
    ap.add_argument("--smoothing", type=float, default=0.1)
    ap.add_argument("--lr", type=float, default=0.03)
    args = ap.parse_args([])
    torch.manual_seed(0)
    np.random.seed(0)
    train = DataLoader(
        Instruments(1200, 1, True), batch_size=32, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True
    )
    val = DataLoader(Instruments(300, 2, False), batch_size=100)
    model = AudioCNN()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train))
    step = 0
    for epoch in range(args.epochs):
        hits = 0.0
        for x, y in train:
            x, ya, yb, lam = mixup(x, y, args.alpha)
            out = model(x)
            loss = lam * F.cross_entropy(out, ya, label_smoothing=args.smoothing) + (1 - lam) * F.cross_entropy(
                out, yb, label_smoothing=args.smoothing
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            hits += (out.argmax(1) == ya).float().mean().item()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        print(f"epoch {epoch} train acc {hits / len(train):.3f} val acc {validate(model, val):.3f}")


if __name__ == "__main__":
    main()
