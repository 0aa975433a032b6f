# expect: healthy
# symptom: training loss has a high floor, is worse than validation loss and shifts when the resolution or the augmentation changes; the run is restored from a checkpoint half way; accuracy on training batches looks bad; the early layers are frozen at the end; it resembles an underfitting or wrongly resumed run
# axis: none
# mended: none
import io
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

CLASSES = ("disc", "ring", "square", "cross", "bars", "triangle")


@dataclass
class Phase:
    size: int
    steps: int
    mixup: float
    freeze_early: bool = False


PHASES = [Phase(16, 110, 0.2), Phase(24, 100, 0.4), Phase(32, 80, 0.4), Phase(32, 40, 0.0, freeze_early=True)]
RESUME_AT = 180


def draw(rng, k, n=32):
    yy, xx = np.mgrid[0:n, 0:n].astype(np.float32)
    cx, cy, r = rng.uniform(11, 21), rng.uniform(11, 21), rng.uniform(5, 9)
    th = rng.uniform(-0.5, 0.5)
    u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
    v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
    rad = np.hypot(u, v)
    shape = [
        rad < r,
        (rad < r) & (rad > 0.6 * r),
        (abs(u) < 0.85 * r) & (abs(v) < 0.85 * r),
        ((abs(u) < 0.3 * r) | (abs(v) < 0.3 * r)) & (rad < 1.2 * r),
        (abs(v) < r) & (abs(u) < r) & (np.sin(u * 2.4 * math.pi / r) > 0),
        (v > -0.8 * r) & (abs(u) < 0.55 * (r - v)) & (v < r),
    ][k]
    img = np.where(shape, rng.uniform(0.5, 1.0), 0.0) + 0.3 * rng.standard_normal((n, n))
    return img.astype(np.float32)


def dataset(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    x = np.stack([draw(rng, int(k)) for k in y])[:, None]
    return torch.from_numpy((x - 0.15) / 0.4), torch.from_numpy(y)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(cout)
        nn.init.zeros_(self.b2.weight)
        self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        return F.relu(self.skip(x) + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))


class Net(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.stem = nn.Conv2d(1, w, 3, padding=1)
        self.blocks = nn.Sequential(ResBlock(w, w, 2), ResBlock(w, 2 * w, 2), ResBlock(2 * w, 3 * w, 1))
        self.fc = nn.Linear(3 * w, len(CLASSES))

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class Run:
    def __init__(self):
        self.total = sum(p.steps for p in PHASES)
        self.net = Net()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min((s + 1) / 30, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * s / self.total)))
        )
        self.gen, self.step = torch.Generator().manual_seed(0), 0

    def state(self):
        buf = io.BytesIO()
        torch.save(
            {
                "net": self.net.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "rng": self.gen.get_state(),
                "step": self.step,
            },
            buf,
        )
        return buf.getvalue()

    @classmethod
    def restore(cls, blob):
        run, s = cls(), torch.load(io.BytesIO(blob), weights_only=True)
        run.net.load_state_dict(s["net"])
        run.opt.load_state_dict(s["opt"])
        run.sched.load_state_dict(s["sched"])
        run.gen.set_state(s["rng"])
        run.step = s["step"]
        return run

    def phase(self):
        s = self.step
        for p in PHASES:
            if s < p.steps:
                return p
            s -= p.steps
        return PHASES[-1]

    def train_step(self, x, y):
        p = self.phase()
        self.net.train()
        if p.freeze_early:
            self.net.stem.requires_grad_(False)
            self.net.blocks[0].requires_grad_(False)
        idx = torch.randint(0, len(x), (64,), generator=self.gen)
        xb, yb = F.interpolate(x[idx], size=p.size, mode="bilinear", antialias=True, align_corners=False), y[idx]
        perm = torch.randperm(64, generator=self.gen)
        lam = 1 - 0.5 * p.mixup * torch.rand(64, 1, generator=self.gen)
        soft = F.one_hot(yb, len(CLASSES)) * 0.9 + 0.1 / len(CLASSES)
        xb = lam[..., None, None] * xb + (1 - lam[..., None, None]) * xb[perm]
        logits = self.net(xb)
        loss = F.cross_entropy(logits, lam * soft + (1 - lam) * soft[perm])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.item(), p


@torch.no_grad()
def evaluate(net, x, y, size):
    net.eval()
    x = F.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
    logits = net(x)
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    x, y = dataset(2400, 1)
    vx, vy = dataset(480, 2)
    run = Run()
    while run.step < run.total:
        loss, p = run.train_step(x, y)
        if run.step % 15 == 0:
            print(f"step {run.step:4d} size {p.size} loss {loss:.4f} lr {run.sched.get_last_lr()[0]:.4f}")
        if run.step % 55 == 0 or run.step == run.total:
            print("  val loss %.4f acc %.3f" % evaluate(run.net, vx, vy, p.size))
        if run.step == RESUME_AT:
            run = Run.restore(run.state())
            print(f"resumed at step {run.step}")


if __name__ == "__main__":
    main()
