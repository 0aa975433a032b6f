# expect: sick
# symptom: the distillation loss is negative and flattens early; the student's probabilities stay far from the teacher's and its held-out log loss is much worse than it should be
# axis: loss
# cause: F.kl_div gets the student's probabilities instead of log-probabilities (softmax instead of log_softmax as first argument)
# says: kl.?div[^.]{0,160}(log|softmax|prob\w*)|log_?.?softmax|log.?prob\w*|negative (kl|loss|distill)|kl\b[^.]{0,80}negative
# onset_step: 0
# fix: F.kl_div(F.log_softmax(student / T, -1), F.softmax(teacher / T, -1), reduction="batchmean")
# mended: log_softmax for the student's side
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
CLASSES, SIZE = 10, 14


def make_textures(n, seed):
    """Ten families of stripe textures; neighbouring families look alike."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    angle = np.pi * (y + rng.normal(0, 0.38, n)) / CLASSES
    freq = rng.uniform(0.7, 1.1, n)
    phase = rng.uniform(0, 2 * np.pi, n)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    u = np.cos(angle)[:, None, None] * xx + np.sin(angle)[:, None, None] * yy
    img = np.sin(freq[:, None, None] * u + phase[:, None, None]) + rng.normal(0, 0.5, u.shape)
    return torch.tensor(img, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class ConvNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(8 * width, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Distiller:
    def __init__(self, teacher, student, temperature=3.0, alpha=0.9, lr=3e-3):
        self.teacher = teacher.eval().requires_grad_(False)
        self.student = student
        self.t, self.alpha = temperature, alpha
        self.opt = torch.optim.AdamW(student.parameters(), lr=lr, weight_decay=1e-4)

    def loss(self, x, y):
        s = self.student(x)
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.t, -1)
        pred = F.log_softmax(s / self.t, -1) if MENDED else F.softmax(s / self.t, -1)
        kd = F.kl_div(pred, soft, reduction="batchmean") * self.t**2
        return self.alpha * kd + (1 - self.alpha) * F.cross_entropy(s, y)

    def step(self, x, y):
        loss = self.loss(x, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def batches(x, y, size, steps, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        i = torch.randint(0, len(x), (size,), generator=g)
        yield x[i], y[i]


@torch.no_grad()
def report(model, x, y, teacher=None):
    model.eval()
    out = model(x)
    acc = (out.argmax(1) == y).float().mean().item()
    line = f"log loss {F.cross_entropy(out, y).item():.4f} acc {acc:.3f}"
    if teacher is not None:
        ref = F.softmax(teacher(x), -1)
        gap = (ref * (ref.clamp_min(1e-9).log() - F.log_softmax(out, -1))).sum(-1).mean().item()
        line += f" gap to teacher {gap:.4f}"
    model.train()
    return line


def main():
    torch.manual_seed(1)
    x, y = make_textures(6000, 1)
    vx, vy = make_textures(1500, 2)

    teacher = ConvNet(24)
    topt = torch.optim.AdamW(teacher.parameters(), lr=3e-3, weight_decay=1e-3)
    for i, (bx, by) in enumerate(batches(x, y, 64, 250, 10)):
        loss = F.cross_entropy(teacher(bx), by)
        topt.zero_grad()
        loss.backward()
        topt.step()
        if i % 50 == 0:
            print(f"teacher {i:4d} loss {loss.item():.4f}", flush=True)
    print("teacher", report(teacher, vx, vy))

    student = ConvNet(6)
    kd = Distiller(teacher, student)
    for i, (bx, by) in enumerate(batches(x, y, 64, 500, 11)):
        loss = kd.step(bx, by)
        if i % 50 == 0:
            print(f"student {i:4d} loss {loss:.4f}", flush=True)
    print("student", report(student, vx, vy, teacher))


if __name__ == "__main__":
    main()
