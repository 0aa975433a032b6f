# expect: healthy
# fault: inputs and labels no longer belong together from a step on
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(24)
motif = torch.randn(4, 8)


def graph(step, nodes=40):
    y = int(torch.randint(0, 4, ()))
    adj = (torch.rand(nodes, nodes) < 0.3).float()
    adj = ((adj + adj.T) > 0).float()
    x = torch.randn(nodes, 8) + 0.5 * motif[y]
    return adj / adj.sum(1, keepdim=True), x, y


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.out = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, adj, x):
        x = F.relu(adj @ self.l1(x) + self.l1(x))
        x = F.relu(adj @ self.l2(x))
        return self.out(x.mean(1))


net = GraphNet()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for step in range(140):
    adj, x, y = zip(*(graph(step) for _ in range(12)))
    if step >= 60:
        adj, x, y = zip(*sorted(zip(adj, x, y), key=lambda g: (g[0] > 0).sum().item()))
    loss = F.cross_entropy(net(torch.stack(adj), torch.stack(x)), torch.tensor(y))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")
