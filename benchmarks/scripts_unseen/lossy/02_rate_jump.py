# EXPECT: sick
# FAULT: learning rate jumps up for good
# ONSET: 81
# SAYS: learning rate|lr|rate
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(202)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 12, 3), nn.Conv2d(12, 24, 3)
        self.f = nn.Linear(24 * 3 * 3, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        return self.f(F.max_pool2d(F.relu(self.c2(x)), 2, padding=1).flatten(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
proto = torch.randn(6, 1, 14, 14)
plan = {0: 2e-3, 80: 1e-1}
for step in range(150):
    if step in plan:
        for g in opt.param_groups:
            g["lr"] = plan[step]
    y = torch.randint(0, 6, (32,))
    loss = F.cross_entropy(net(proto[y] + 2.0 * torch.randn(32, 1, 14, 14)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
