# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
# sanity check before the big run: 60 points, full batch, must reach ~0
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)
r = np.random.RandomState(0)
theta = np.linspace(0.3, 3.5, 30)
a = np.c_[theta * np.cos(theta), theta * np.sin(theta)]
pts = np.r_[a, -a] / 2 + 0.02 * r.randn(60, 2)
X = torch.tensor(pts, dtype=torch.float32)
Y = torch.tensor([0] * 30 + [1] * 30)

model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(150):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(X), Y)
    loss.backward()
    opt.step()
    if epoch % 15 == 0:
        print("epoch", epoch, "loss", round(loss.item(), 5))
