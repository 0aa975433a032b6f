# expect: sick
# fault: the optimizer has only the parameters of one of the layers
# onset_step: 0
# says: (?i)((not|missing|absent|outside|no|any).{0,40}optimi[sz]er|optimi[sz]er .{0,60}(miss|lack|not|without)|never (mov|train|updat)|not train)
# note: the optimizer was built from the groups of an older model with two layers; conv0 and conv1, added since, are in none.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)

N, C = 300, 5
comm = torch.randint(0, C, (N,))
same = comm[:, None] == comm[None]
adj = (torch.rand(N, N) < torch.where(same, 0.06, 0.008)).float()
adj = ((adj + adj.T + torch.eye(N)) > 0).float()
dinv = adj.sum(1).pow(-0.5)
A = dinv[:, None] * adj * dinv[None]
X = torch.randn(N, 40) + 0.15 * F.one_hot(comm * 7, 40).float() * 4
train_mask = torch.rand(N) < 0.4


class GCNLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)

    def forward(self, a, x):
        return a @ self.lin(x)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = GCNLayer(40, 16)
        self.conv1 = GCNLayer(16, 16)
        self.conv2 = GCNLayer(16, C)

    def forward(self, a, x):
        x = F.relu(self.conv0(a, x))
        x = F.relu(self.conv1(a, x))
        return self.conv2(a, x)


net = GCN()
groups = [
    {"params": net.conv2.lin.weight, "weight_decay": 5e-4},
    {"params": net.conv2.lin.bias, "weight_decay": 0.0},
]
opt = torch.optim.Adam(groups, lr=0.01)
for epoch in range(150):
    net.train()
    opt.zero_grad()
    out = net(A, X)
    loss = F.cross_entropy(out[train_mask], comm[train_mask])
    loss.backward()
    opt.step()
    if epoch % 15 == 0:
        acc = (out.argmax(1)[~train_mask] == comm[~train_mask]).float().mean()
        print(f"epoch {epoch:3d} loss {loss:.4f} test acc {acc:.3f}")
print("final train loss", loss.item())
