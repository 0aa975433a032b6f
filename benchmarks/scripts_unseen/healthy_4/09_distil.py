# expect: healthy
# cause: none, distillation with temperature 4 and a squared-temperature weight, whose loss ends far from zero because the teacher is soft
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(90)
CLASSES = 12
protos = torch.randn(CLASSES, 3, 32)
protos = protos + 0.7 * protos[torch.arange(CLASSES) // 3 * 3]


def motion(n):
    """three-axis movement patterns; the kinds come in groups that look alike"""
    y = torch.randint(0, CLASSES, (n,))
    shift = torch.randint(-2, 3, (n,))
    x = torch.stack([protos[k].roll(int(s), 1) for k, s in zip(y, shift)])
    return x + 1.5 * torch.randn_like(x), y


teacher = nn.Sequential(
    nn.Conv1d(3, 96, 7, padding=3),
    nn.ReLU(),
    nn.Conv1d(96, 96, 5, padding=2),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Flatten(),
    nn.Linear(96 * 16, 128),
    nn.ReLU(),
    nn.Linear(128, CLASSES),
)
student = nn.Sequential(
    nn.Conv1d(3, 24, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(24 * 16, CLASSES)
)


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()


xv, yv = motion(1500)
opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
for i in range(150):
    x, y = motion(64)
    loss = F.cross_entropy(teacher(x), y, label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"teacher {loss.item():.4f} accuracy {accuracy(teacher, xv, yv):.3f}")
teacher.requires_grad_(False).eval()

TEMP, MIX = 4.0, 0.9
opt = torch.optim.Adam(student.parameters(), lr=2e-3)
for i in range(300):
    student.train()
    x, y = motion(64)
    with torch.no_grad():
        soft = F.softmax(teacher(x) / TEMP, dim=1)
    logits = student(x)
    kd = -(soft * F.log_softmax(logits / TEMP, dim=1)).sum(1).mean() * TEMP**2
    loss = MIX * kd + (1 - MIX) * F.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 50 == 49:
        print(f"student step {i + 1} loss {loss.item():.3f} accuracy {accuracy(student, xv, yv):.3f}")
