# EXPECT: sick
# FAULT: eval mode left on after the first validation
# ONSET: 21
# SAYS: eval|train mode|training mode|.train()
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(64)
NC = 6
patterns = torch.randn(NC, 2, 8, 8)


def batch(n):
    y = torch.randint(NC, (n,))
    return patterns[y] + 2.5 * torch.randn(n, 2, 8, 8), y


TRAIN = batch(160)
VAL = batch(400)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.6)
        self.fc = nn.Linear(16 * 16, NC)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(self.drop(x.flatten(1)))


def validate(model):
    model.eval()
    with torch.no_grad():
        logits = model(VAL[0])
        return F.cross_entropy(logits, VAL[1]).item(), (logits.argmax(1) == VAL[1]).float().mean().item()


model = Net()
model.train()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 121):
    sel = torch.randint(160, (32,))
    x, y = TRAIN[0][sel], TRAIN[1][sel]
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        vl, va = validate(model)
        print(f"step {step} train {loss.item():.4f} val {vl:.4f} acc {va:.3f}")
