# expect: sick
# symptom: the teacher trains well; the student's loss is a number at its first step and nan from its second step on
# axis: precision
# cause: the student's weights are cast to float16 with .half() and trained by Adam; in float16 the second moment and eps=1e-8 both round to zero, so the first update divides by zero
# says: (eps\w*|1e-0?8|second moment|exp_avg_sq|denominator|variance|squared? grad\w*)[^.]{0,90}(fp16|float16|half|round|underflow|zero|too small)|(fp16|float16|half)[^.]{0,70}(adam|optimi[sz]er|weights?|param\w*|master|eps|moment|model)|(adam|optimi[sz]er|master|pure)\w*[^.]{0,70}(fp16|float16|half)|divi\w*[^.]{0,20}(by zero|0/0)[^.]{0,60}(adam|optimi[sz]er)|(adam|optimi[sz]er)[^.]{0,60}(divi\w*[^.]{0,20}zero|0/0|underflow)
# onset_step: 201
# fix: keep the student's weights in float32 (and use autocast where speed is wanted)
# mended: with MENDED=1 the student and its inputs stay in float32
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
HALF = os.environ.get("MENDED") != "1"


class Teacher(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(48 * 4, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Student(nn.Module):
    def __init__(self, side, classes, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(side * side, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, classes),
        )

    def forward(self, x):
        return self.net(x)


class Sketches:
    """Noisy views of a few random line drawings."""

    def __init__(self, classes=8, side=12, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.side, self.classes = side, classes
        self.proto = torch.zeros(classes, side, side)
        for c in range(classes):
            pos = torch.randint(2, side - 2, (2,), generator=self.gen)
            for _ in range(3 * side):
                move = torch.randint(-1, 2, (2,), generator=self.gen)
                pos = (pos + move).clamp(1, side - 2)
                self.proto[c, pos[0], pos[1]] = 1.0

    def batch(self, n):
        y = torch.randint(0, self.classes, (n,), generator=self.gen)
        x = self.proto[y]
        shift = int(torch.randint(-1, 2, (1,), generator=self.gen))
        x = torch.roll(x, shift, dims=2)
        x = x + 0.5 * torch.randn(x.shape, generator=self.gen)
        return x.unsqueeze(1), y


def train_teacher(data, steps=200):
    teacher = Teacher(data.classes)
    optim = torch.optim.SGD(teacher.parameters(), lr=0.05, momentum=0.9)
    for it in range(1, steps + 1):
        x, y = data.batch(32)
        loss = F.cross_entropy(teacher(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if it % 50 == 0:
            print(f"teacher {it:4d} loss {loss.item():.4f}")
    return teacher.eval().requires_grad_(False)


def kd_loss(student_logits, teacher_logits, y, temperature=3.0, alpha=0.7):
    s, t = student_logits.float(), teacher_logits.float()
    soft = F.kl_div(F.log_softmax(s / temperature, 1), F.softmax(t / temperature, 1), reduction="batchmean")
    return alpha * temperature**2 * soft + (1 - alpha) * F.cross_entropy(s, y)


def distill(teacher, data, steps=400, lr=1e-3):
    student = Student(data.side, data.classes)
    if HALF:
        student = student.half()
    dtype = next(student.parameters()).dtype
    optim = torch.optim.Adam(student.parameters(), lr=lr)
    for it in range(1, steps + 1):
        x, y = data.batch(64)
        with torch.no_grad():
            soft_targets = teacher(x)
        out = student(x.to(dtype))
        loss = kd_loss(out, soft_targets, y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if it % 40 == 0 or it == 1:
            acc = (out.argmax(1) == y).float().mean().item()
            print(f"student {it:4d} loss {loss.item():.4f} acc {acc:.3f}")
    return student


def main():
    torch.manual_seed(13)
    data = Sketches()
    teacher = train_teacher(data)
    student = distill(teacher, data)
    x, y = data.batch(1000)
    with torch.no_grad():
        out = student.eval()(x.to(next(student.parameters()).dtype))
        print(
            f"teacher acc {(teacher(x).argmax(1) == y).float().mean().item():.3f} "
            f"student acc {(out.argmax(1) == y).float().mean().item():.3f}"
        )


if __name__ == "__main__":
    main()
