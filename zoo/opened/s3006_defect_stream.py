# expect: sick
# symptom: the loss is near zero most of the time but jumps up now and then; final accuracy is near chance
# axis: data
# cause: shards are sorted by class and the shuffle buffer is far too small, so it trains on one class at a time
# says: (sorted|ordered|grouped)\b.*(class|label|type)|shuffl|(one|single|same).(class|label)|class.by.class
# onset_step: 1
# fix: permute the records over all shards before streaming them
# mended: the script applies that change if the environment has MENDED=1
"""Surface-defect classifier fed by a streaming reader over record shards."""

import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
SEED, BATCH, CLASSES, SIDE = 17, 32, 8, 16
PER_CLASS, SHARD, BUFFER, LR = 1600, 400, 128, 1e-3


def defect_patch(c, rng):
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    img = 0.5 * rng.standard_normal((SIDE, SIDE))
    if c < 4:
        ang = np.pi * c / 4 + rng.normal(0, 0.06)
        img += np.cos((xx * np.cos(ang) + yy * np.sin(ang)) * 1.2 + rng.uniform(0, 6.3))
    else:
        cx, cy = rng.uniform(5, 11, 2)
        d = np.hypot(xx - cx, yy - cy)
        radius = 1.5 if c < 6 else 4.5
        img += (1.8 if c % 2 else -1.8) * np.exp(-0.5 * ((d - (0 if c < 6 else radius)) / 1.3) ** 2)
    return img.astype(np.float32)[None]


def write_shards(seed):
    """The line exports one directory per defect type; each becomes a run of shards."""
    rng = np.random.default_rng(seed)
    records = [(defect_patch(c, rng), c) for c in range(CLASSES) for _ in range(PER_CLASS)]
    if ALT:
        random.Random(seed).shuffle(records)
    return [records[i : i + SHARD] for i in range(0, len(records), SHARD)]


class ShardStream(IterableDataset):
    def __init__(self, shards, buffer, seed):
        self.shards, self.buffer, self.seed = shards, buffer, seed

    def __iter__(self):
        rnd = random.Random(self.seed)
        held = []
        for shard in self.shards:
            for rec in shard:
                if len(held) < self.buffer:
                    held.append(rec)
                    continue
                k = rnd.randrange(self.buffer)
                out, held[k] = held[k], rec
                yield torch.from_numpy(out[0]), out[1]
        rnd.shuffle(held)
        for x, y in held:
            yield torch.from_numpy(x), y


def build():
    def conv(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU(), nn.MaxPool2d(2))

    return nn.Sequential(conv(1, 16), conv(16, 32), conv(32, 32), nn.Flatten(), nn.Linear(128, CLASSES))


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = model(x).argmax(1)
    model.train()
    return (pred == y).float().mean().item()


def main():
    torch.manual_seed(SEED)
    loader = DataLoader(ShardStream(write_shards(SEED), BUFFER, SEED), batch_size=BATCH)
    rng = np.random.default_rng(SEED + 1)
    yv = np.arange(400) % CLASSES
    xv = torch.from_numpy(np.stack([defect_patch(int(c), rng) for c in yv]))
    yv = torch.from_numpy(yv)
    model = build()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    running = 0.0
    for step, (x, y) in enumerate(loader, 1):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 10 == 0:
            print(f"step {step} train loss {running / 10:.4f}")
            running = 0.0
        if step % 100 == 0:
            print(f"step {step} valid accuracy {evaluate(model, xv, yv):.3f}")
    print(f"final step {step} loss {loss.item():.4f} valid accuracy {evaluate(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
