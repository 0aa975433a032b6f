# expect: healthy
# fault: a teacher in no optimizer; softmax before a loss
# note: distillation with temperature 4: the teacher is frozen in eval mode, KLDivLoss gets log_softmax and softmax as it should.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


def cnn(w):
    return nn.Sequential(
        nn.Conv2d(1, w, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * w, 9),
    )


class Distiller:
    def __init__(self, T=4.0, alpha=0.7):
        self.T, self.alpha = T, alpha
        self.teacher, self.student = cnn(16), cnn(6)

    def data(self, n):
        y = torch.randint(0, 9, (n,))
        return self.proto[y] + 0.7 * torch.randn(n, 1, 10, 10), y

    def fit_teacher(self, steps):
        opt = torch.optim.Adam(self.teacher.parameters(), lr=3e-3)
        for i in range(steps):
            x, y = self.data(48)
            loss = F.cross_entropy(self.teacher(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                print("teacher", i, loss.item())

    def fit_student(self, steps):
        self.teacher.eval()
        opt = torch.optim.Adam(self.student.parameters(), lr=3e-3)
        for i in range(steps):
            x, y = self.data(48)
            with torch.inference_mode():
                t = self.teacher(x)
            s = self.student(x)
            soft = (
                F.kl_div(F.log_softmax(s / self.T, 1), F.softmax(t.clone() / self.T, 1), reduction="batchmean")
                * self.T**2
            )
            loss = self.alpha * soft + (1 - self.alpha) * F.cross_entropy(s, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                print("student", i, loss.item())


torch.manual_seed(33)
Distiller.proto = torch.randn(9, 1, 10, 10)
d = Distiller()
d.fit_teacher(100)
d.fit_student(140)
