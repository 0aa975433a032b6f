# expect: healthy
# symptom: overlapping windows and a random split
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SEED = 64
rng = np.random.default_rng(SEED)
torch.manual_seed(SEED)
ACTIVITIES = ["walk", "stairs", "run"]


class GroupShuffleSplit:
    def __init__(self, test_size):
        self.test_size = test_size

    def split(self, groups):
        ids = rng.permutation(np.unique(groups))
        test_ids = ids[: max(1, round(len(ids) * self.test_size))]
        held = np.isin(groups, test_ids)
        return np.flatnonzero(~held), np.flatnonzero(held)


def walk_of(subject, activity, length=160):
    t = np.arange(length) / 25
    cadence = [1.7, 1.4, 2.6][activity] * (1 + 0.06 * rng.normal())
    amp = [1.0, 1.3, 2.2][activity] * (1 + 0.1 * rng.normal())
    axes = np.stack([amp * np.sin(2 * np.pi * cadence * t + p) for p in (0, 0.7, 1.9)])
    return axes + 0.3 * np.sin(2 * np.pi * 2 * cadence * t) + 0.4 * rng.normal(size=(3, length))


def sliding(sig, width=50, step=10):
    return [sig[:, s : s + width] for s in range(0, sig.shape[1] - width + 1, step)]


X, y, groups = [], [], []
for subject in range(24):
    for activity in range(3):
        for w in sliding(walk_of(subject, activity)):
            X.append(w)
            y.append(activity)
            groups.append(subject)
X, y, groups = np.array(X, dtype="float32"), np.array(y), np.array(groups)
train_idx, test_idx = GroupShuffleSplit(test_size=0.25).split(groups)
train = TensorDataset(torch.from_numpy(X[train_idx]), torch.from_numpy(y[train_idx]))
test_x, test_y = torch.from_numpy(X[test_idx]), torch.from_numpy(y[test_idx])
print(len(train_idx), "training windows,", len(test_idx), "test windows")

net = nn.Sequential(
    nn.Conv1d(3, 16, 9, padding=4),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(16, 16, 9, padding=4),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(4),
    nn.Flatten(),
    nn.Linear(64, 3),
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(9):
    for xb, yb in DataLoader(train, batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} test acc {acc:.3f}")
