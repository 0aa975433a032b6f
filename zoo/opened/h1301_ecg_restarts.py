# expect: healthy
# symptom: the training loss jumps up at steps 140 and 280, each time after it had become small, and is bumpy for a while after
# axis: none
# mended: none
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
rng = np.random.default_rng(17)

LEN, CLASSES = 160, 4


def beat(t, centre, width, height):
    return height * np.exp(-(((t - centre) / width) ** 2))


def make_ecg(n):
    """Four rhythms: normal, early extra beats, broad complexes, missing first waves."""
    t = np.arange(LEN)
    xs = np.zeros((n, LEN))
    ys = rng.integers(0, CLASSES, size=n)
    for i in range(n):
        period = rng.uniform(32, 44)
        pos = rng.uniform(5, 25)
        k = 0
        while pos < LEN:
            width = 2.0 if ys[i] != 2 else 3.4
            shift = -period * 0.18 if (ys[i] == 1 and k % 2 == 1) else 0.0
            xs[i] += beat(t, pos + shift, width, rng.uniform(0.8, 1.2))
            xs[i] += beat(t, pos + shift + 11, 5, 0.25)
            if ys[i] != 3:
                xs[i] += beat(t, pos + shift - 8, 3, 0.2)
            pos += period * rng.uniform(0.96, 1.04)
            k += 1
        xs[i] += 0.2 * np.sin(2 * math.pi * t / rng.uniform(100, 300) + rng.uniform(0, 6)) + 0.12 * rng.normal(size=LEN)
    return torch.tensor(xs[:, None], dtype=torch.float32), torch.from_numpy(ys)


class Res1d(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.a = nn.Conv1d(c_in, c_out, 7, stride=stride, padding=3, bias=False)
        self.b = nn.Conv1d(c_out, c_out, 7, padding=3, bias=False)
        self.na, self.nb = nn.BatchNorm1d(c_out), nn.BatchNorm1d(c_out)
        self.skip = nn.Conv1d(c_in, c_out, 1, stride=stride)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(h)) + self.skip(x))


class ECGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Res1d(1, 16, 2), Res1d(16, 32, 2), Res1d(32, 32, 2))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(-1) == y).float().mean().item()


x_train, y_train = make_ecg(1920)
x_val, y_val = make_ecg(400)
model = ECGNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=140, T_mult=1, eta_min=1e-4)

BS, step = 32, 0
snapshots = []
while step < 420:
    order = torch.randperm(len(x_train))
    for i in range(0, len(order) - BS + 1, BS):
        idx = order[i : i + BS]
        loss = F.cross_entropy(model(x_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.4f}")
        step += 1
        if step in (140, 280, 420):
            snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
            print("snapshot %d: val loss %.4f acc %.3f" % (len(snapshots), *evaluate(model, x_val, y_val)))

probs = 0.0
for s in snapshots:
    model.load_state_dict(s)
    model.eval()
    with torch.no_grad():
        probs = probs + model(x_val).softmax(-1) / len(snapshots)
print(f"snapshot ensemble acc {(probs.argmax(-1) == y_val).float().mean().item():.3f}")
