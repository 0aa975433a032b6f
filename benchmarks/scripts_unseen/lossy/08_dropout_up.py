# EXPECT: sick
# FAULT: dropout raised to 0.95
# ONSET: 91
# SAYS: dropout
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(208)


class Net(nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 96), nn.Linear(96, 96), nn.Linear(96, 6)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        x = self.drop(torch.relu(self.a(x)))
        x = self.drop(torch.relu(self.b(x)))
        return self.c(x)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
mu = torch.randn(6, 16)
for step in range(160):
    if step == 90:
        net.drop.p = 0.95
    y = torch.randint(0, 6, (48,))
    loss = nn.functional.cross_entropy(net(mu[y] + 1.1 * torch.randn(48, 16)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, "%.4f" % loss.item())
