# expect: healthy
# fault: the same batch each step, most rows outside the loss
# note: node classification is full batch: one graph, the same train mask each epoch; only 20 % of the nodes have labels.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(75)
N = 240
block = torch.arange(N) % 4
p = torch.where(block[:, None] == block[None], 0.08, 0.01)
adj = torch.bernoulli(p).triu(1)
src, dst = (adj + adj.T).nonzero(as_tuple=True)
feat = torch.randn(N, 12) + F.one_hot(block, 12).float()
train = torch.rand(N) < 0.2


class SageLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own, self.nb = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, x):
        s = torch.zeros(N, x.shape[1]).index_add(0, dst, x[src])
        deg = torch.zeros(N).index_add(0, dst, torch.ones(len(dst))).clamp(min=1)
        return self.own(x) + self.nb(s / deg[:, None])


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = SageLayer(12, 24), SageLayer(24, 4)

    def forward(self, x):
        return self.l2(F.dropout(F.relu(self.l1(x)), 0.3, self.training))


net = Sage()
opt = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(120):
    net.train()
    loss = F.cross_entropy(net(feat)[train], block[train])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if epoch % 12 == 0:
        net.eval()
        with torch.no_grad():
            acc = (net(feat).argmax(1)[~train] == block[~train]).float().mean()
        print(epoch, f"loss {loss.item():.4f} test acc {acc:.3f}")
