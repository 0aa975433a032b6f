# expect: sick
# symptom: loss stays flat at ln 4 (1.386) although neighbours tell the class
# axis: model
# cause: attention weights are softmaxed over all edges of the batch instead of over the edges of each node
# says: (?i)(softmax.*(dim|axis|edge|wrong)|(dim|axis).*softmax|normali[sz]ed over (all|the wrong)|wrong (dim|axis))
# onset_step: 1
# fix: normalise the scores per destination node (scatter softmax) instead of softmax over dim 0 of all edges
# mended: MENDED=1 python s04_citation_gat.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(2)
PER_NODE = os.environ.get("MENDED") == "1"
C = 4


class EgoNets(Dataset):
    """One paper with its neighbours; the label follows the topic of the neighbours."""

    def __init__(self, n, k=8, f=16, seed=1):
        g = torch.Generator().manual_seed(seed)
        centres = 1.2 * torch.randn(C, f, generator=g)
        self.y = torch.randint(0, C, (n,), generator=g)
        self.x = centres[self.y][:, None] + torch.randn(n, k, f, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def collate(items):
    xs, ys = zip(*items)
    k = xs[0].shape[0]
    dst = torch.arange(len(xs)).repeat_interleave(k)
    return torch.cat(xs), dst, torch.stack(ys)


class GAT(nn.Module):
    def __init__(self, f=16, h=32):
        super().__init__()
        self.w = nn.Linear(f, h, bias=False)
        self.a = nn.Linear(h, 1)
        self.cls = nn.Linear(h, C)

    def forward(self, x, dst, n):
        m = self.w(x)
        e = F.leaky_relu(self.a(m)).squeeze(-1)
        if PER_NODE:
            num = (e - e.max()).exp()
            alpha = num / torch.zeros(n).index_add(0, dst, num)[dst]
        else:
            alpha = torch.softmax(e, dim=0)
        pooled = torch.zeros(n, m.shape[1]).index_add(0, dst, alpha[:, None] * m)
        return self.cls(F.elu(pooled))


net = GAT()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
step = 0
for epoch in range(3):
    for x, dst, y in DataLoader(EgoNets(256 * 40), batch_size=256, shuffle=True, collate_fn=collate):
        loss = F.cross_entropy(net(x, dst, len(y)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            print("step", step, "loss", round(loss.item(), 4))
