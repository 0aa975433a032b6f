# expect: healthy
# fault: none
# note: distillation from a trained teacher in eval mode under no_grad, with temperature.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(25)
C = torch.randn(8, 20)
mk = lambda h: nn.Sequential(nn.Linear(20, h), nn.ReLU(), nn.Dropout(0.1), nn.Linear(h, 8))


def data(n=64):
    y = torch.randint(0, 8, (n,))
    return C[y] + 1.0 * torch.randn(n, 20), y


teacher, student = mk(128), mk(24)
opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for s in range(120):
    x, y = data()
    loss = F.cross_entropy(teacher(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
teacher.eval().requires_grad_(False)
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
T = 2.0
for s in range(150):
    x, y = data()
    with torch.no_grad():
        t = teacher(x)
    z = student(x)
    loss = 0.7 * T * T * F.kl_div(
        F.log_softmax(z / T, 1), F.softmax(t / T, 1), reduction="batchmean"
    ) + 0.3 * F.cross_entropy(z, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 15 == 0:
        print(s, round(loss.item(), 4))
