# expect: sick
# fault: label smoothing enormous
# onset_step: 0
# says: (?i)(smooth|target.{0,40}(uniform|flat)|uniform)
# note: label_smoothing=0.95 where 0.05 was meant (the parameter was taken for the weight of the true class).
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(60)
K = 12
proto = torch.randn(K, 3, 8, 8)
y = torch.randint(0, K, (1200,))
x = proto[y] * 0.6 + torch.randn(1200, 3, 8, 8)
loader = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=40, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 16, 3, padding=1)
        self.c2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 16, K)

    def forward(self, x):
        x = torch.relu(self.c1(x))
        x = torch.relu(self.c2(x))
        return self.fc(x.flatten(1))


net = Net()
criterion = nn.CrossEntropyLoss(label_smoothing=0.95)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    for xb, yb in loader:
        loss = criterion(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        out = net(x[1000:])
    nll = nn.functional.cross_entropy(out, y[1000:]).item()
    print(
        f"epoch {epoch} loss {loss.item():.4f} final nll {nll:.3f} acc {(out.argmax(1) == y[1000:]).float().mean():.3f}"
    )
