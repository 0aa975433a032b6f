# EXPECT: sick
# FAULT: accumulated gradients are summed, not averaged
# ONSET: 1
# SAYS: accumul
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(88)

ACCUM_STEPS = 16
MICRO = 8
LR = 0.25  # tuned for a batch of 128


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)


teacher = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))
for p in teacher.parameters():
    p.data.mul_(2.0)


def micro_batches():
    while True:
        x = torch.randn(MICRO, 12)
        with torch.no_grad():
            y = teacher(x).argmax(1)
        yield x, y


model = MLP()
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
criterion = nn.CrossEntropyLoss()
optimizer.zero_grad()
updates, running = 0, 0.0
for i, (x, y) in enumerate(micro_batches(), 1):
    loss = criterion(model(x), y)
    loss.backward()
    running += loss.item()
    if i % ACCUM_STEPS == 0:
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
        if updates % 10 == 0:
            print(f"update {updates:3d}  loss {running / (10 * ACCUM_STEPS):.4f}")
            running = 0.0
        if updates == 90:
            break
