# expect: sick
# fault: blocks in a plain Python list, so not among model.parameters()
# onset_step: 0
# says: (?i)((not|missing|absent|outside|no|any).{0,40}optimi[sz]er|optimi[sz]er .{0,60}(miss|lack|not|without)|plain (python )?list|not registered|unregistered|ModuleList|never (mov|train|updat)|not train)
# note: self.blocks is a Python list instead of a ModuleList; only stem and head train.
import torch
from torch import nn

torch.set_num_threads(1)


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.net(x)


class TabResNet(nn.Module):
    def __init__(self, features, d=24, depth=4):
        super().__init__()
        self.stem = nn.Linear(features, d)
        self.blocks = [ResBlock(d) for _ in range(depth)]
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x).squeeze(-1)


def main():
    torch.manual_seed(4)
    X = torch.randn(2000, 6)
    y = torch.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2].abs() - X[:, 3] * X[:, 4]
    model = TabResNet(6)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        idx = torch.randint(0, 1800, (64,))
        loss = (model(X[idx]) - y[idx]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, loss.item())
    print("final val mse", (model(X[1800:]) - y[1800:]).pow(2).mean().item())


main()
