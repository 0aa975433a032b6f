# expect: sick
# symptom: the loss falls normally for some steps, then turns NaN and stays NaN; accuracy drops to chance
# axis: data
# cause: windows are z-scored by their own std; a stuck constant channel has std zero, so 0/0 gives NaN
# says: (zero|constant|flat|stuck).*(std|devia|varia|normali|divi)|(std|devia|varia|divi).*(zero|flat|\b0)
# onset_step: 57
# fix: put a floor under the per-window std before dividing
# mended: the script applies that change if the environment has MENDED=1
"""Activity recognition from wrist accelerometer recordings (ADC counts), 1-D CNN."""

import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
WIN, FS = 96, 32.0
ACTIVITIES = ["sit", "walk", "run", "stairs", "cycle"]


def record_session(rng, label, seconds):
    """One recording of a subject: three axes of 12-bit counts around the gravity offset."""
    n = int(seconds * FS)
    t = np.arange(n) / FS
    base = {0: 0.25, 1: 1.8, 2: 2.9, 3: 1.4, 4: 1.1}[label]
    amp = {0: 6, 1: 120, 2: 320, 3: 140, 4: 90}[label]
    f = base * rng.uniform(0.88, 1.12)
    sig = np.zeros((3, n))
    for axis in range(3):
        ph = rng.uniform(0, 2 * np.pi)
        sig[axis] = amp * rng.uniform(0.6, 1.2) * np.sin(2 * np.pi * f * t + ph)
        if label in (1, 3):
            sig[axis] += 0.5 * amp * np.sin(2 * np.pi * (2 if label == 1 else 3) * f * t + 2 * ph)
        sig[axis] += rng.normal(0, 12, n) + rng.integers(-900, 900)
    counts = np.clip(np.round(sig), -1024, 1023)
    if rng.random() < 0.03:
        start = int(rng.integers(0, n - 110))
        counts[rng.integers(0, 3), start : start + 110] = -1024
    return counts.astype(np.int16)


class WindowDataset(Dataset):
    def __init__(self, rng, sessions, hop=48):
        self.items = []
        for s in range(sessions):
            label = int(rng.integers(0, len(ACTIVITIES)))
            rec = record_session(rng, label, 14)
            for a in range(0, rec.shape[1] - WIN + 1, hop):
                self.items.append((rec[:, a : a + WIN], label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        counts, label = self.items[i]
        x = torch.from_numpy(counts.astype(np.float32))
        mu = x.mean(dim=1, keepdim=True)
        sd = x.std(dim=1, keepdim=True).clamp_min(1.0 if FLAG else 0.0)
        return (x - mu) / sd, label


class ConvNet(nn.Module):
    def __init__(self, n_cls):
        super().__init__()
        chans = [3, 24, 32, 48]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(4, b), nn.ReLU(), nn.MaxPool1d(2))
            for a, b in zip(chans[:-1], chans[1:])
        )
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(chans[-1], n_cls))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x.mean(dim=-1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = total = 0
    for x, y in loader:
        hit += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hit / total


def main():
    torch.manual_seed(5)
    rng = np.random.default_rng(11)
    train, val = WindowDataset(rng, 330), WindowDataset(rng, 60)
    dl = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    vl = DataLoader(val, batch_size=128)
    model = ConvNet(len(ACTIVITIES))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    print(f"{len(train)} train windows, {len(val)} val windows, {len(dl)} steps per epoch")
    step = 0
    for epoch in range(5):
        for x, y in dl:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val acc {accuracy(model, vl):.3f}")


if __name__ == "__main__":
    main()
