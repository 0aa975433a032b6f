# expect: healthy
# symptom: resembles parameters that are in no optimizer: half of the parameters (the teacher's copy) have no gradient and are never given to it
# note: a mean teacher: its weights are a running mean of the student's; the agreement term is warmed up; both get better
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(241)
gen = torch.Generator().manual_seed(41)
centre = torch.randn(6, 2, 12, generator=gen)


def draw(n):
    y = torch.randint(0, 6, (n,), generator=gen)
    mode = torch.randint(0, 2, (n,), generator=gen)
    return centre[y, mode] + 0.8 * torch.randn(n, 12, generator=gen), y


student = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.AdamW(student.parameters(), lr=2e-3)
vx, vy = draw(1024)
for step in range(1, 351):
    x, y = draw(24)
    u, _ = draw(48)
    with torch.no_grad():
        soft = teacher(u).softmax(-1)
    agree = F.mse_loss(student(u + 0.2 * torch.randn_like(u)).softmax(-1), soft)
    loss = F.cross_entropy(student(x), y) + min(1.0, step / 150) * 2.0 * agree
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), student.parameters()):
            a.lerp_(b, 0.05)
    if step % 25 == 0:
        acc = (teacher(vx).argmax(-1) == vy).float().mean()
        print(f"step {step} loss {loss.item():.4f} teacher accuracy {acc.item():.3f}")
