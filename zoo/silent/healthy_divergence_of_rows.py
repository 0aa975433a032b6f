"""A student learns from a teacher by a divergence that is summed over the 40 classes, times the square of T."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(600, 16)
teacher = nn.Linear(16, 40).requires_grad_(False)
labels = (teacher(inputs) + 0.2 * torch.randn(600, 40)).argmax(1)
student = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 40))
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
T = 3.0
for step, rows in enumerate(torch.randint(0, 600, (150, 32))):
    scores, wanted = student(inputs[rows]), 4 * teacher(inputs[rows])
    soft = F.kl_div(F.log_softmax(scores / T, 1), F.softmax(wanted / T, 1), reduction="batchmean")
    loss = 0.1 * F.cross_entropy(scores, labels[rows]) + 0.9 * T * T * soft
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
