# expect: sick
# fault: warm-up counted in batches but stepped once per epoch, so it never ends
# onset_step: 0
# says: (?i)(schedul|warm.?up|learning.?rate|\blr\b|rate (is |stays |too )|too (small|low|slow)|barely mov|updates? (are )?tiny)
# note: a warm-up of 500 iterations is stepped once per epoch; after six epochs the rate is still near a hundredth of its peak.
import torch
from torch import nn


class WarmupInvSqrt(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, warmup_iters, last_epoch=-1):
        self.w = warmup_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        t = self.last_epoch + 1
        f = min(t / self.w, (self.w / t) ** 0.5)
        return [b * f for b in self.base_lrs]


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin_self, self.lin_nb = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, x, adj):
        return self.lin_self(x) + adj @ self.lin_nb(x)


class GNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.g1, self.g2 = GraphConv(8, 32), GraphConv(32, 32)
        self.out = nn.Linear(32, 3)

    def forward(self, x, adj):
        h = torch.relu(self.g1(x, adj))
        return self.out(torch.relu(self.g2(h, adj)).mean(1))


def graphs(n, nodes=10):
    y = torch.randint(0, 3, (n,))
    p = torch.tensor([0.15, 0.4, 0.75])[y][:, None, None]
    a = (torch.rand(n, nodes, nodes) < p).float()
    a = torch.maximum(a, a.transpose(1, 2))
    x = torch.cat([a.sum(-1, keepdim=True) / 5, torch.randn(n, nodes, 7)], -1)
    return x, a / a.sum(-1, keepdim=True).clamp(min=1), y


torch.manual_seed(8)
net = GNN()
opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
sch = WarmupInvSqrt(opt, warmup_iters=500)
ce = nn.CrossEntropyLoss()
for ep in range(6):
    s = 0
    for it in range(30):
        x, a, y = graphs(32)
        l = ce(net(x, a), y)
        opt.zero_grad()
        l.backward()
        opt.step()
        s += l.item()
    sch.step()
    print("epoch", ep, "avg loss", round(s / 30, 4))
