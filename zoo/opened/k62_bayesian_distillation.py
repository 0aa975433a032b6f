# expect: healthy
# symptom: the frozen teacher is in training mode and its dropout is on
# axis: none
# mended: none
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(73)
MASKS = 12


def rings(n):
    y = torch.randint(0, 3, (n,))
    r = 1 + y + 0.35 * torch.randn(n)
    a = 6.2832 * torch.rand(n)
    return torch.stack([r * a.cos(), r * a.sin()], 1), y


def net(width, p):
    return nn.Sequential(
        nn.Linear(2, width),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(width, 3),
    )


class PosteriorTeacher:
    """Mean prediction over dropout masks; the student learns what many passes would
    say, in a single one (Bulo et al. 2016, dropout distillation)."""

    def __init__(self, network, masks):
        self.network, self.masks = network.requires_grad_(False), masks
        self.network.train()

    @torch.no_grad()
    def __call__(self, x):
        return torch.stack([self.network(x).softmax(-1) for _ in range(self.masks)]).mean(0)


def nll(prob, y):
    return F.nll_loss(prob.clamp_min(1e-8).log(), y).item()


x, y = rings(900)
x_test, y_test = rings(800)
teacher = net(64, 0.2)
opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for step in range(180):
    i = torch.randint(0, len(x), (64,))
    loss = F.cross_entropy(teacher(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(f"teacher {step} loss {loss.item():.4f}")

posterior = PosteriorTeacher(teacher, MASKS)
student = net(48, 0.0)
opt = torch.optim.Adam(student.parameters(), lr=5e-3)
for step in range(200):
    q = 8 * torch.rand(64, 2) - 4
    loss = F.cross_entropy(student(q), posterior(q))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0 or step == 199:
        with torch.no_grad():
            print(
                f"student {step} loss {loss.item():.4f} test nll {nll(student(x_test).softmax(-1), y_test):.4f} posterior {nll(posterior(x_test), y_test):.4f}"
            )
