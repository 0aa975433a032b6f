# EXPECT: sick
# FAULT: scheduler drives the rate to zero at once
# ONSET: 1
# SAYS: learning rate|lr|rate|schedule
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)

WARMUP = 500
STEPS = 100


def make_batch(bs=32):
    # three classes: vertical bar, horizontal bar, diagonal
    y = torch.randint(0, 3, (bs,))
    x = 0.3 * torch.randn(bs, 1, 12, 12)
    for i in range(bs):
        k = int(torch.randint(2, 10, (1,)))
        if y[i] == 0:
            x[i, 0, :, k] += 1.5
        elif y[i] == 1:
            x[i, 0, k, :] += 1.5
        else:
            x[i, 0] += 1.5 * torch.eye(12)
    return x, y


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.c2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24 * 3 * 3, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc(x.flatten(1))


model = SmallCNN()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, s // WARMUP))

for it in range(1, STEPS + 1):
    x, y = make_batch()
    out = model(x)
    loss = F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if it % 10 == 0:
        acc = (out.argmax(1) == y).float().mean()
        print(it, round(loss.item(), 4), f"acc={acc:.2f}")
