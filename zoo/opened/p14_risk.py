# expect: sick
# symptom: evaluation leaves the model in eval mode: dropout off, batch-norm statistics frozen
# axis: harness
# cause: the model is left in evaluation mode after a test
# says: eval(uation)?.{0,40}mode|eval\(\)|train\(\)
# onset_step: 30
# fix: call train() before training
# mended: q14_risk.py
"""Batch-norm network on tabular risk data with a small training set; evaluated during the run."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)
D = 40


class RiskData:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        z = torch.randn(n, D, generator=g)
        self.x = z * torch.linspace(4.0, 0.5, D) + 3.0
        score = z[:, 0] * z[:, 1] + torch.sin(2 * z[:, 2]) + z[:, 3] - 0.8 * z[:, 4].abs() + 0.6
        score = score + 0.5 * torch.randn(n, generator=g)
        self.y = torch.bucketize(score, torch.tensor([-1.5, 0.0, 1.5]))


class RiskNet(nn.Module):
    def __init__(self, width=256, p=0.4):
        super().__init__()
        dims = [D, width, width, width]
        self.lin = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.bn = nn.ModuleList(nn.BatchNorm1d(b) for b in dims[1:])
        self.drop = nn.Dropout(p)
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        for lin, bn in zip(self.lin, self.bn):
            x = self.drop(F.relu(bn(lin(x))))
        return self.out(x)


train, valid = RiskData(1920, 1), RiskData(1000, 2)
net = RiskNet()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)


def validate():
    net.eval()
    with torch.no_grad():
        out = net(valid.x)
    return F.cross_entropy(out, valid.y).item(), (out.argmax(1) == valid.y).float().mean().item()


net.train()
for step in range(450):
    pick = torch.randint(0, len(train.x), (64,))
    loss = F.cross_entropy(net(train.x[pick]), train.y[pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"step {step} loss {loss.item():.4f}")
    if step % 30 == 29:
        v, acc = validate()
        print(f"step {step} validation loss {v:.4f} accuracy {acc:.3f}")
