# expect: sick
# symptom: validation says 100 percent, the final test on data of the same kind says 83 and differs from call to call
# axis: harness
# cause: the final test runs while the model is still in training mode (dropout and batch statistics active), only the validation switches to eval
# says: (train(ing)?.?mode|\.eval\(\)|eval mode|dropout).*(test|active|missing|never|still|on)|(test|predict).*(train(ing)?.?mode|without eval|dropout|eval\(\))
# onset_step: 240
# fix: call model.eval() before the test
# mended: model.eval() before the test
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(9)
MENDED = os.environ.get("MENDED") == "1"
N_CLASS, T, C = 8, 24, 6


def gestures(n):
    y = torch.randint(0, N_CLASS, (n,))
    t = torch.linspace(0, 1, T)
    freq = 1 + y.float()
    wave = torch.sin(6.283 * (freq[:, None, None] * t + torch.rand(n, 1, 1)) + torch.arange(C)[None, :, None])
    return wave + 0.8 * torch.randn(n, C, T), y


class GestureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(C, 32, 5, padding=2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Conv1d(32, 32, 5, padding=2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.6), nn.Linear(32 * T, 64), nn.ReLU(), nn.Dropout(0.6), nn.Linear(64, N_CLASS)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def train_epoch(model, loader, opt):
    model.train()
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def validate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return correct / total


full = TensorDataset(*gestures(1800))
train_set, val_set, test_set = random_split(full, [1280, 260, 260])
train_loader = DataLoader(train_set, 32, shuffle=True)
val_loader, test_loader = DataLoader(val_set, 10), DataLoader(test_set, 10)
model = GestureNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    loss = train_epoch(model, train_loader, opt)
    print(f"epoch {epoch} loss {loss:.3f} val acc {validate(model, val_loader):.3f}")

if MENDED:
    model.eval()
hits = 0
with torch.no_grad():
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum().item()
print(f"test acc {hits / len(test_set):.3f}")
