# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(33)


class ProbNet(nn.Module):
    """Returns probabilities because the calibration code wants them."""

    def __init__(self, d, k):
        super().__init__()
        self.a = nn.Linear(d, 64)
        self.b = nn.Linear(64, k)

    def forward(self, x):
        return F.softmax(self.b(F.relu(self.a(x))), dim=-1)


mu = torch.randn(9, 14)
net = ProbNet(14, 9)
nll = nn.NLLLoss()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for i in range(130):
    y = torch.randint(0, 9, (50,))
    p = net(mu[y] + 1.1 * torch.randn(50, 14))
    loss = nll(torch.log(p + 1e-9), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 13 == 0:
        print(i, "nll", round(loss.item(), 4), "mean top prob", round(p.max(-1).values.mean().item(), 3))
