"""CTC with a target longer than its input: no path leads there, the loss is +Inf.

Modelled on pytorch#14401 and icefall#135.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    frames = torch.randn(12, 4, 8)
    targets = torch.randint(1, 5, (4, 6))
    frame_counts = torch.full((4,), 12)
    if step == 7:
        frame_counts[2] = 4  # cut by the augmentation
    scores = torch.log_softmax(model(frames), dim=-1)
    loss = F.ctc_loss(scores, targets, frame_counts, torch.full((4,), 6))  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
