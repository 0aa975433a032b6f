# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)

centers = torch.randn(4, 10) * 1.2
student = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False


@torch.no_grad()
def ema(t, s, m=0.97):
    for a, b in zip(t.parameters(), s.parameters()):
        a.mul_(m).add_(b, alpha=1 - m)


opt = torch.optim.Adam(student.parameters(), lr=1.5e-3)
for it in range(140):
    y = torch.randint(4, (16,))
    xl = centers[y] + torch.randn(16, 10)
    xu = centers[torch.randint(4, (64,))] + torch.randn(64, 10)
    with torch.no_grad():
        soft = F.softmax(teacher(xu + 0.1 * torch.randn_like(xu)), 1)
    sup = F.cross_entropy(student(xl), y)
    cons = F.mse_loss(F.softmax(student(xu + 0.1 * torch.randn_like(xu)), 1), soft)
    loss = sup + min(1.0, it / 80) * cons
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema(teacher, student)
    if it % 20 == 0:
        print(f"it {it} sup {sup.item():.4f} cons {cons.item():.5f}")
