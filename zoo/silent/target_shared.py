"""The target network is a shallow copy: its layers are those of the model, and it moves with every update."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 3))
target = copy.copy(model)  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 161):
    state, action = torch.randn(32, 6), torch.randint(3, (32, 1))
    after, reward = state + 0.1 * torch.randn(32, 6), state[:, :1]
    with torch.no_grad():
        wanted = reward + 0.9 * target(after).max(1, keepdim=True).values
    loss = F.smooth_l1_loss(model(state).gather(1, action), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 32 == 0:
        target.load_state_dict(model.state_dict())
