# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""Fine-tune with BatchNorm frozen: statistics and affine stay those of pre-training, the new domain is small."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(83)


def freeze_bn(m):
    if isinstance(m, nn.modules.batchnorm._BatchNorm):
        m.eval()
        m.weight.requires_grad_(False)
        m.bias.requires_grad_(False)


class Net(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()
        )
        self.head = nn.Linear(64, k)

    def train(self, mode=True):
        super().train(mode)
        self.apply(freeze_bn)  # BN never leaves eval mode
        return self

    def forward(self, x):
        return self.head(self.trunk(x))


net = Net(4)
# statistics "from pre-training"
with torch.no_grad():
    bn1, bn2 = net.trunk[1], net.trunk[4]
    z = net.trunk[0](torch.randn(2000, 20))
    bn1.running_mean.copy_(z.mean(0))
    bn1.running_var.copy_(z.var(0))
    h = net.trunk[3](torch.relu(bn1.eval()(z)))
    bn2.running_mean.copy_(h.mean(0))
    bn2.running_var.copy_(h.var(0))
net.train()
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.005, momentum=0.9)
c = torch.randn(4, 20) * 0.45
for step in range(120):
    y = torch.randint(0, 4, (24,))
    loss = nn.functional.cross_entropy(net(c[y] + 0.7 * torch.randn(24, 20)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print("ft step", step, loss.item())
