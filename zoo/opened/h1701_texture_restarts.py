# expect: healthy
# symptom: training loss is bumpy and goes up again after it had gone down (from steps 60 and 180 on); the learning rate leaps by two orders of magnitude
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(61)

CLASSES, SIZE, BATCH = 8, 20, 32
FIRST_CYCLE, CYCLES = 60, 3


def make_textures(n, seed):
    """Blobs of a class-dependent size and direction, mixed with clutter."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, size=n)
    gy, gx = np.mgrid[0:SIZE, 0:SIZE]
    x = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    for i, c in enumerate(y):
        ang = np.pi * c / CLASSES + 0.12 * rng.normal()
        u = gx * np.cos(ang) + gy * np.sin(ang)
        pic = np.sin(u * rng.uniform(0.9, 1.4) + rng.uniform(0, 6.3))
        other = rng.uniform(0, np.pi)
        pic += 0.5 * np.sin((gx * np.cos(other) + gy * np.sin(other)) * 0.7)
        x[i, 0] = pic + 1.3 * rng.normal(size=pic.shape)
    return torch.from_numpy(x), torch.from_numpy(y)


def stage(i, o, stride):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)
    )


class SmallNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.features = nn.Sequential(
            stage(1, w, 1), stage(w, 2 * w, 2), stage(2 * w, 2 * w, 1), stage(2 * w, 4 * w, 2)
        )
        self.fc = nn.Linear(4 * w, CLASSES)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    x, y = make_textures(2000, 1)
    vx, vy = make_textures(400, 2)
    model = SmallNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=FIRST_CYCLE, T_mult=2, eta_min=1e-3)
    ends = [FIRST_CYCLE * (2 ** (k + 1) - 1) for k in range(CYCLES)]
    gen = torch.Generator().manual_seed(5)
    snapshots = []
    t0 = time.time()
    for step in range(ends[-1]):
        idx = torch.randint(0, len(x), (BATCH,), generator=gen)
        loss = F.cross_entropy(model(x[idx]), y[idx], label_smoothing=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.5f} t {time.time() - t0:.1f}")
        sched.step()
        if step + 1 in ends:
            snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
            print(f"cycle {len(snapshots)} ends, val accuracy {accuracy(model, vx, vy):.3f}")
    # snapshot ensemble over the ends of the cycles
    votes = torch.zeros(len(vx), CLASSES)
    for snap in snapshots:
        model.load_state_dict(snap)
        model.eval()
        with torch.no_grad():
            votes += model(vx).softmax(-1)
    print(f"ensemble accuracy {(votes.argmax(1) == vy).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
