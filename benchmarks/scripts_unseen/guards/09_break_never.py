# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import math
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(309)
x = torch.randn(1200, 8)
y = x[:, :2].sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(60):
    xb, yb = x[step * 20 : (step + 1) * 20], y[step * 20 : (step + 1) * 20]
    loss = ((net(xb) - yb) ** 2).mean()
    if math.isnan(loss.item()):
        print("loss is nan, stopping")
        break
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        print(step, loss.item())
