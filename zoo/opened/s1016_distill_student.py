# expect: sick
# symptom: the distillation loss goes to nearly zero very quickly, yet the student's accuracy is near chance while the teacher had over 90 percent
# axis: model
# cause: the teacher is not frozen: its parameters are in the optimizer and its logits are not detached, so the distillation loss pulls the teacher to the student and both agree on a trivial answer
# says: teacher[^.\n]{0,80}(not frozen|unfrozen|train(s|ed|able)\b|training (along|too|as well)|updat|mov|chang|drift|gradient|grad\b|detach|collaps|optimi[sz]er|learn|requires_grad)|(freeze|frozen|detach|no_grad|stop.?grad)[^.\n]{0,60}teacher|(target|both|student)[^.\n]{0,60}(collaps|not detached|moving)|collaps[^.\n]{0,40}(teacher|target)
# onset_step: 0
# fix: freeze the teacher (no_grad or detach, and only student parameters in the optimizer)
# mended: the teacher logits are detached
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(16)

CLASSES, SIDE, T = 10, 16, 3.0
TEACHER_STEPS, STUDENT_STEPS, BATCH = 160, 400, 48


def prototypes():
    return F.interpolate(torch.randn(CLASSES, 1, 6, 6), SIDE, mode="bicubic")


def draw(protos, n):
    y = torch.randint(0, CLASSES, (n,))
    x = protos[y]
    dx, dy = torch.randint(-2, 3, (2,)).tolist()
    x = torch.roll(x, (dx, dy), (2, 3))
    return x + 0.9 * torch.randn(n, 1, SIDE, SIDE), y


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            conv(1, 32),
            conv(32, 32),
            nn.MaxPool2d(2),
            conv(32, 64),
            nn.MaxPool2d(2),
            conv(64, 64),
            nn.Flatten(),
            nn.Linear(64 * 16, CLASSES),
        )

    def forward(self, x):
        return self.net(x)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            conv(1, 12), nn.MaxPool2d(2), conv(12, 24), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24 * 16, CLASSES)
        )

    def forward(self, x):
        return self.net(x)


class Distiller(nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher, self.student = teacher, student

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x):
        t = self.teacher(x)
        if MENDED:
            t = t.detach()
        s = self.student(x)
        kl = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean")
        return kl * T * T


@torch.no_grad()
def accuracy(net, protos):
    was = net.training
    net.eval()
    hits = [(net(x).argmax(1) == y).float().mean() for x, y in (draw(protos, 100) for _ in range(12))]
    net.train(was)
    return torch.stack(hits).mean().item()


def main():
    protos = prototypes()
    teacher = Teacher()
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for step in range(TEACHER_STEPS):
        x, y = draw(protos, BATCH)
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"teacher ready: ce {loss.item():.3f}, accuracy {accuracy(teacher, protos):.3f}")

    model = Distiller(teacher, Student()).train()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STUDENT_STEPS):
        x, _ = draw(protos, BATCH)
        loss = model(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d}  kd loss {loss.item():.4f}")
    print(f"student accuracy {accuracy(model.student, protos):.3f}")


if __name__ == "__main__":
    main()
