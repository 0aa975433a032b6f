# expect: sick
# symptom: after the first validation the training loss jumps up and the run blows up, though the validation itself is harmless
# axis: harness
# cause: the validation switches the model to evaluation mode and nothing switches it back, so batch norm trains on frozen running statistics
# says: \beval(uation)?\b.{0,15}(mode|\(\)|left|on|never|still|stays)|\.eval|(model\.)?train\(\).{0,60}(missing|never|not|after)|(not|never) (switched|set|put|returned|back|brought).{0,30}train|(running|frozen) (stat\w*|mean|var\w*)|(left|stays|remain\w*|stuck|still|switch\w*).{0,20}(in|on|to) eval|inference mode
# onset_step: 61
# fix: call model.train() at the start of every epoch
# mended: MENDED=1
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)
ACTIVITIES = ["rest", "walk", "run", "stairs", "cycle", "row"]


def recordings(n, seed, length=64):
    g = np.random.default_rng(seed)
    y = g.integers(0, len(ACTIVITIES), n)
    t = np.arange(length) / 32
    freq = np.array([0.2, 1.4, 2.6, 1.8, 1.1, 0.6])[y] * g.normal(1, 0.08, n)
    amp = np.array([0.1, 1.0, 2.2, 1.2, 0.7, 1.5])[y] * g.lognormal(0, 0.25, n)
    tilt = g.normal(0, 1, (n, 3))
    out = np.empty((n, 3, length), np.float32)
    for axis in range(3):
        wave = np.sin(2 * np.pi * (axis + 1) * freq[:, None] * t + g.uniform(0, 6.28, (n, 1)))
        out[:, axis] = amp[:, None] * wave / (axis + 1) + tilt[:, axis : axis + 1] + g.normal(0, 0.3, (n, length))
    return torch.tensor(out * 3.0 + 4.0), torch.tensor(y)


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.a, self.b = nn.Conv1d(ch, ch, 5, padding=2, bias=False), nn.Conv1d(ch, ch, 5, padding=2, bias=False)
        self.na, self.nb = nn.BatchNorm1d(ch, momentum=0.02), nn.BatchNorm1d(ch, momentum=0.02)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        return F.relu(x + self.nb(self.b(h)))


class MotionNet(nn.Module):
    def __init__(self, ch=16, depth=3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(3, ch, 7, stride=2, padding=3, bias=False), nn.BatchNorm1d(ch, momentum=0.02)
        )
        self.blocks = nn.Sequential(*[ResBlock(ch) for _ in range(depth)])
        self.fc = nn.Linear(ch, len(ACTIVITIES))

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.stem(x))).mean(-1))


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
        return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def fit(epochs=4, per_epoch=60, batch=32):
    x, y = recordings(per_epoch * batch, 1)
    xv, yv = recordings(300, 2)
    model = MotionNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9, nesterov=True, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * per_epoch)
    model.train()
    step = 0
    for epoch in range(epochs):
        if os.environ.get("MENDED") == "1":
            model.train()
        order = torch.randperm(len(x)).view(per_epoch, batch)
        for b in order:
            loss = F.cross_entropy(model(x[b]), y[b])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 15 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        val, acc = validate(model, xv, yv)
        print(f"epoch {epoch} valid loss {val:.4f} acc {acc:.3f}")


if __name__ == "__main__":
    fit()
