# expect: sick
# symptom: accuracy climbs at first, then freezes at a mediocre value after about 160 steps although nothing has converged
# axis: schedule
# cause: ReduceLROnPlateau is in its default mode "min" but is given the validation accuracy, so each improvement counts as a plateau and the learning rate is cut again and again
# says: reduce.?lr.?on.?plateau|plateau.{0,40}(mode|scheduler|direction)|(mode|scheduler|direction).{0,60}plateau|mode ?= ?.?(min|max)|(scheduler|schedule).{0,80}(accuracy|wrong (mode|direction)|mode)|(learning.?rate|\blr\b).{0,80}(cut|reduc|drop|decay|shrink|collaps|fall|decreas)\w*.{0,60}(improv|rising|accuracy|while|although|too (early|soon|fast)|repeatedly|again|near(ly)? zero|to (zero|0)|prematurely)
# onset_step: 161
# fix: mode="max" for ReduceLROnPlateau
# mended: the scheduler is built with mode="max"
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=640)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--eval-every", type=int, default=40)
parser.add_argument("--hidden", type=int, default=48)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(9)
random.seed(9)
np.random.seed(9)

CLASSES = ["walk", "run", "stairs up", "stairs down", "cycle", "sit"]
T = 40


def recording(c):
    """Three accelerometer axes at 20 Hz for two seconds."""
    t = np.arange(T) / 20
    freq = [1.8, 2.6, 1.6, 1.7, 1.2, 0.0][c] * np.random.normal(1, 0.06)
    amp = [1.0, 2.0, 1.1, 1.2, 0.7, 0.05][c] * np.random.normal(1, 0.15)
    ph = np.random.rand() * 2 * np.pi
    x = amp * np.sin(2 * np.pi * freq * t + ph)
    y = 0.6 * amp * np.sin(4 * np.pi * freq * t + ph + [0, 0.5, 1.5, -1.5, 2.5, 0][c])
    z = 1.0 + 0.5 * amp * np.abs(np.sin(np.pi * freq * t + ph / 2 + (0.8 if c == 3 else 0)))
    s = np.stack([x, y, z], 1) + np.random.normal(0, 0.25, (T, 3))
    return s.astype(np.float32)


class Recordings(Dataset):
    def __init__(self, n):
        self.y = np.random.randint(0, len(CLASSES), n)
        self.x = [recording(c) for c in self.y]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class GRUClassifier(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gru = nn.GRU(3, hidden, num_layers=1, batch_first=True)
        self.head = nn.Linear(hidden, len(CLASSES))

    def forward(self, x):
        out, _ = self.gru(x)
        return self.head(out.mean(1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    ok = n = 0
    for x, y in loader:
        ok += (model(x).argmax(1) == y).sum().item()
        n += len(y)
    model.train()
    return ok / n


def build_scheduler(opt):
    if os.environ.get("MENDED") == "1":
        return ReduceLROnPlateau(opt, mode="max", factor=0.1, patience=2)
    return ReduceLROnPlateau(opt, factor=0.1, patience=2)


if __name__ == "__main__":
    train = DataLoader(Recordings(6000), batch_size=48, shuffle=True, num_workers=2, persistent_workers=True)
    val = DataLoader(Recordings(1200), batch_size=300)
    model = GRUClassifier(args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = build_scheduler(opt)
    step, total = 0, 0.0
    while step < args.steps:
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss.item()
            step += 1
            if step % args.eval_every == 0:
                acc = accuracy(model, val)
                scheduler.step(acc)
                print(f"step {step} loss {total / args.eval_every:.4f} val acc {acc:.3f}", flush=True)
                total = 0.0
            if step >= args.steps:
                break
    print(f"final validation accuracy {accuracy(model, val):.3f}")
