# expect: sick
# symptom: the loss is small for 360 steps, then leaps to several times its value, and the accuracy never comes back
# axis: data
# cause: the images of the third shard come as 0 to 255 instead of 0 to 1, as its floats are not divided by 255
# says: (normali[sz]\w*|scal(e|ed|ing)|255|range|unscaled|rescal\w*|divided by 255).{0,120}(input|image|pixel|data|shard|feature|0.{1,6}1\b|255)|(input|image|pixel|data|shard|feature|value)s?.{0,100}(normali[sz]\w*|unnormali[sz]ed|scale|scaled|scaling|255|out of range|range|larger|magnitude|times)
# onset_step: 361
# fix: divide every shard whose largest value exceeds one by 255
# mended: MENDED=1
import os
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
torch.manual_seed(19)


def scan_shards(seed=19):
    """Three deliveries of scans."""
    g = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    shards = []
    for n, dtype in ((5760, np.uint8), (5760, np.uint8), (5760, np.float32)):
        pick = g.integers(0, len(images), n)
        shifted = np.stack([np.roll(images[i], g.integers(-1, 2), axis=1) for i in pick])
        noisy = np.clip(shifted * g.uniform(0.7, 1.0, (n, 1, 1)) + g.normal(0, 0.08, shifted.shape), 0, 1)
        buffer = BytesIO()
        np.savez(buffer, x=(noisy * 255).astype(dtype), y=labels[pick])
        buffer.seek(0)
        shards.append(buffer)
    return shards


class ScanStream(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def to_float(self, x):
        if os.environ.get("MENDED") == "1":
            return x.astype(np.float32) / 255 if x.max() > 1 else x
        return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x

    def __iter__(self):
        for shard in self.shards:
            with np.load(shard) as f:
                x, y = self.to_float(f["x"]), f["y"]
            for image, label in zip(x, y):
                yield torch.from_numpy(image).unsqueeze(0) - 0.3, int(label)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.Tanh(), nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.Tanh(),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(24 * 16, 64), nn.Tanh(), nn.Linear(64, 10),
    )  # fmt: skip


def main():
    net = build()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.2, total_iters=540)
    correct = seen = 0
    for step, (x, y) in enumerate(DataLoader(ScanStream(scan_shards()), batch_size=32), 1):
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        correct, seen = correct + (out.argmax(1) == y).sum().item(), seen + len(y)
        if step % 20 == 0 or 360 < step < 366:
            print(f"step {step} loss {loss.item():.4f} acc {correct / seen:.3f}")
            correct = seen = 0


if __name__ == "__main__":
    main()
