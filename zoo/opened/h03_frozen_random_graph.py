# expect: healthy
# symptom: resembles frozen layers: the first graph layer never moves
# note: the first layer is a frozen random projection on purpose (requires_grad False), the rest learns
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Graphs(Dataset):
    def __init__(self, n, nodes=10, f=6):
        g = torch.Generator().manual_seed(5)
        a = (torch.rand(n, nodes, nodes, generator=g) < 0.3).float()
        a = ((a + a.transpose(1, 2)) > 0).float() * (1 - torch.eye(nodes)) + torch.eye(nodes)
        self.a, self.x = a / a.sum(-1, keepdim=True), torch.randn(n, nodes, f, generator=g)
        self.y = (
            torch.relu(self.a @ self.x[..., :1]).mean((1, 2)) > torch.relu(self.a @ self.x[..., 1:2]).mean((1, 2))
        ).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.a[i], self.x[i], self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 32).requires_grad_(False)
        self.conv, self.out = nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, a, x):
        return self.out(torch.relu(self.conv(a @ self.project(x))).mean(1))


net = Net()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=5e-3)
for step, (a, x, y) in enumerate(DataLoader(Graphs(64 * 250), batch_size=64, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(a, x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
