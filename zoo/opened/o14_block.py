# expect: healthy
# symptom: rows that are blended, which looks like labels that are not
# axis: none
# mended: none
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(2)
torch.manual_seed(2)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.gain = nn.Parameter(torch.tensor(0.5))

    def forward(self, h):
        return (1 - self.gain) * h + self.gain * self.fc2(F.relu(self.fc1(h)))


class ManifoldNet(nn.Module):
    def __init__(self, n_in, classes, dim=32, depth=3):
        super().__init__()
        self.stem = nn.Linear(n_in, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x, mix=None):
        h = self.stem(x)
        for i, block in enumerate(self.blocks):
            if mix is not None and mix["layer"] == i:
                h = torch.lerp(h[mix["perm"]], h, mix["lam"])
            h = block(h)
        return self.head(h)


def sample_mix(n, depth=3, alpha=1.0):
    lam = random.betavariate(alpha, alpha)
    return {"layer": random.randrange(depth), "perm": torch.randperm(n), "lam": lam}


def make_data(n, teacher):
    x = torch.randn(n, 12)
    with torch.no_grad():
        y = (teacher(x) * 3).argmax(1)
    return x, y


teacher = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
x_train, y_train = make_data(800, teacher)
x_test, y_test = make_data(400, teacher)
net = ManifoldNet(12, 4)
opt = torch.optim.Adam(net.parameters(), lr=4e-3)

for epoch in range(1, 11):
    order = torch.randperm(len(x_train))
    total, batches = 0.0, 0
    for idx in order.split(40):
        x, y = x_train[idx], y_train[idx]
        mix = sample_mix(len(x))
        logits = net(x, mix)
        loss_here = F.cross_entropy(logits, y)
        loss_there = F.cross_entropy(logits, y[mix["perm"]])
        loss = mix["lam"] * loss_here + (1 - mix["lam"]) * loss_there
        opt.zero_grad()
        loss.backward()
        opt.step()
        total, batches = total + loss.item(), batches + 1
    if epoch % 2 == 0:
        with torch.no_grad():
            acc = (net(x_test).argmax(1) == y_test).float().mean().item()
        print(f"epoch {epoch} loss {total / batches:.4f} test acc {acc:.3f}")
