# expect: healthy
# symptom: a state is carried on, which looks like one of unrelated batches
# axis: none
# mended: none
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


class SensorNet(nn.Module):
    def __init__(self, n_features=3, hidden=24, classes=4):
        super().__init__()
        self.hidden_size = hidden
        self.gru = nn.GRU(n_features, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)
        self.hidden = None

    def reset_hidden(self, batch_size):
        self.hidden = torch.zeros(1, batch_size, self.hidden_size)

    def forward(self, x):
        out, h = self.gru(x, self.hidden)
        self.hidden = h.detach()
        return self.fc(out.mean(dim=1))


def make_gestures(n, length=14):
    label = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 1, length)
    freq = 1.0 + label.float()[:, None]
    phase = 6.28 * torch.rand(n, 1)
    base = torch.stack(
        [
            torch.sin(6.28 * freq * t + phase),
            torch.cos(6.28 * freq * t + phase),
            t.expand(n, length) * (label % 2)[:, None],
        ],
        dim=-1,
    )
    return base + 0.3 * torch.randn_like(base), label


def run_epoch(net, loader, opt=None):
    loss_fn = nn.CrossEntropyLoss()
    total, hits, seen = 0.0, 0, 0
    for x, y in loader:
        net.reset_hidden(x.size(0))
        logits = net(x)
        loss = loss_fn(logits, y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.item() * len(y)
        hits += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    return total / seen, hits / seen


train = DataLoader(TensorDataset(*make_gestures(800)), batch_size=32, shuffle=True)
test = DataLoader(TensorDataset(*make_gestures(200)), batch_size=50)
net = SensorNet()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(7):
    tr = run_epoch(net, train, opt)
    with torch.no_grad():
        te = run_epoch(net, test)
    print(f"epoch {epoch}: train {tr[0]:.4f}/{tr[1]:.2f} test {te[0]:.4f}/{te[1]:.2f}")
