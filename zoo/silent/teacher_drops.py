"""The teacher of a distillation is never put in evaluation mode: its dropout is on."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def classifier(width):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Dropout(0.4), nn.Linear(width, 5))


rows = torch.randn(1024, 12)
answers = (rows @ torch.randn(12, 5)).argmax(1)
teacher = classifier(96)
of_teacher = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for batch in torch.randperm(1024).split(32):
    of_teacher.zero_grad()
    F.cross_entropy(teacher(rows[batch]), answers[batch]).backward()
    of_teacher.step()

student = classifier(24)  # <- bites: no teacher.eval()
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (32,))
    with torch.no_grad():
        wanted = (teacher(rows[batch]) / 2).softmax(-1)
    loss = F.kl_div((student(rows[batch]) / 2).log_softmax(-1), wanted, reduction="batchmean") * 4
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
