"""An accuracy is given to ReduceLROnPlateau in its default mode: the rate is cut while the accuracy rises."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1)  # <- bites
held = torch.randn(512, 16)
answers = teacher(held).argmax(1)

for step in range(1, 241):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(model(x), teacher(x).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            accuracy = (model(held).argmax(1) == answers).float().mean().item()
        scheduler.step(accuracy)
        print(f"step {step}  loss {loss.item():.3f}  accuracy {accuracy:.3f}")
