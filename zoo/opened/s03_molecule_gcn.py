# expect: sick
# symptom: loss hangs at a high plateau from the start; only the readout moves, all graph layers keep their first values
# axis: model
# cause: the graph layers sit in a plain Python list, so they are not registered and the optimizer never gets them
# says: (?i)(python list|ModuleList|not registered|unregistered|never (given|passed|handed) to the optimi[sz]er|missing from the optimi[sz]er|not in the optimi[sz]er|(lacks|without) .*parameters|(do(es)? not|never) (train|move|update)|frozen)
# onset_step: 1
# fix: nn.ModuleList around the layers
# mended: MENDED=1 python s03_molecule_gcn.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
N, FEAT, HID = 12, 40, 3


class Molecules(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(5)
        a = (torch.rand(n, N, N, generator=g) < 0.25).float()
        a = ((a + a.transpose(1, 2)) > 0).float() * (1 - torch.eye(N)) + torch.eye(N)
        self.adj = a / a.sum(-1, keepdim=True)
        self.x = torch.randn(n, N, FEAT, generator=g)
        one = torch.relu(self.adj @ self.x[..., :1]).mean((1, 2))
        two = torch.relu(self.adj @ self.x[..., 1:2]).mean((1, 2))
        self.y = (one > two).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.adj[i], self.x[i], self.y[i]


class GraphConv(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.lin = nn.Linear(a, b)

    def forward(self, adj, x):
        return torch.relu(self.lin(adj @ x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        convs = [GraphConv(FEAT, HID), GraphConv(HID, HID)]
        self.convs = nn.ModuleList(convs) if os.environ.get("MENDED") == "1" else convs
        self.readout = nn.Linear(2 * HID, 1)

    def forward(self, adj, x):
        a = self.convs[0](adj, x)
        b = self.convs[1](adj, a)
        return self.readout(torch.cat([a.mean(1), b.mean(1)], -1)).squeeze(-1)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
loader = DataLoader(Molecules(64 * 70), batch_size=64, shuffle=True, drop_last=True)
bce, it = nn.BCEWithLogitsLoss(), 0
for epoch in range(5):
    total = 0.0
    for adj, x, y in loader:
        opt.zero_grad()
        loss = bce(net(adj, x), y)
        loss.backward()
        opt.step()
        it += 1
        total += loss.item()
    print(f"epoch {epoch} ({it} steps) loss {total / len(loader):.4f}")
