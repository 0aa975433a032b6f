# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader, random_split

torch.set_num_threads(1)
torch.manual_seed(16)
x = torch.rand(1500, 6)
y = (x[:, :1] * 4 - x[:, 1:2] ** 2 + torch.sin(5 * x[:, 2:3])) + 0.05 * torch.randn(1500, 1)
tr, va = random_split(TensorDataset(x, y), [1280, 220])
loader = DataLoader(tr, batch_size=32, shuffle=True)
net = nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))
loss_fn = nn.MSELoss()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(3):
    for xb, yb in loader:
        assert net(xb).shape == yb.shape
        loss = loss_fn(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        vx, vy = va[:]
        print(f"epoch {epoch} train {loss.item():.4f} val {loss_fn(net(vx), vy).item():.4f}")
