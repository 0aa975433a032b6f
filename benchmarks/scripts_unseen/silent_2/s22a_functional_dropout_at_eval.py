# expect: sick
# fault: functional dropout stays on at evaluation
# onset_step: 0
# says: (?i)(dropout|eval|train(ing)? mode|random|stochastic|nondetermin|validation|differ)
# note: F.dropout(x, 0.6) defaults to training=True, so model.eval() does not turn it off and validation is noisy and worse.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
C = torch.randn(8, 30)


def make(n):
    y = torch.randint(0, 8, (n,))
    return TensorDataset(C[y] + 1.5 * torch.randn(n, 30), y)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(30, 128), nn.Linear(128, 128), nn.Linear(128, 8)

    def forward(self, x):
        x = F.dropout(F.relu(self.l1(x)), 0.6)
        x = F.dropout(F.relu(self.l2(x)), 0.6)
        return self.l3(x)


model = MLP()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
train_dl, val_dl = DataLoader(make(1600), 40, shuffle=True), DataLoader(make(400), 100)
for epoch in range(5):
    model.train()
    for x, y in train_dl:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        v = [F.cross_entropy(model(x), y).item() for x, y in val_dl]
        acc = [(model(x).argmax(1) == y).float().mean().item() for x, y in val_dl]
    print(f"epoch {epoch} train {loss.item():.4f} val {sum(v) / len(v):.4f} acc {sum(acc) / len(acc):.3f}")
