"""A target network in bfloat16 takes one hundredth of the way in each step, which its values round away."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TARGET = torch.bfloat16  # <- bites
model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
target = copy.deepcopy(model).to(TARGET).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 241):
    state, later = torch.randn(64, 4), torch.randn(64, 4)
    reward = state[:, 0].sin() + state[:, 1]
    with torch.no_grad():
        wanted = reward + 0.9 * target(later.to(TARGET)).float().squeeze(1)
    loss = nn.functional.mse_loss(model(state).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, trained in zip(target.parameters(), model.parameters(), strict=True):
            kept.lerp_(trained.to(TARGET), 0.01)
    if step % 80 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
