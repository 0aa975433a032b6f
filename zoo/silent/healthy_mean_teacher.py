"""A mean teacher in training mode, whose noise is meant, and a frozen encoder in evaluation mode."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.4)).eval()
student = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 5))
teacher = copy.deepcopy(student)
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
rows = torch.randn(1024, 12)
answers = (rows @ torch.randn(12, 5)).argmax(1)

for step in range(1, 161):
    batch = torch.randint(0, 1024, (32,))
    with torch.no_grad():
        given = encoder(rows[batch])
        wanted = teacher(given + 0.05 * torch.randn_like(given)).softmax(-1)
    scores = student(given)
    loss = F.cross_entropy(scores, answers[batch]) + F.mse_loss(scores.softmax(-1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
            mine.lerp_(theirs, 0.01)
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
