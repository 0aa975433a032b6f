# expect: healthy
# symptom: a class sampler is fitted on all rows before the split
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
GEN = np.random.default_rng(17)
torch.manual_seed(17)


class RandomUnderSampler:
    """Keeps every row of the rarest class and as many rows, drawn without
    replacement, of each other class."""

    def fit_resample(self, X, y):
        k = np.bincount(y).min()
        keep = np.concatenate([GEN.choice(np.flatnonzero(y == c), k, replace=False) for c in np.unique(y)])
        return X[keep], y[keep]


def train_test_split(X, y, test_size):
    order = GEN.permutation(len(y))
    cut = round(len(y) * (1 - test_size))
    tr, te = order[:cut], order[cut:]
    return X[tr], X[te], y[tr], y[te]


def load_leaves():
    counts = [4000, 1500, 700, 500]
    y = np.repeat(np.arange(4), counts)
    centre = GEN.normal(0, 0.75, (4, 16))
    X = centre[y] + GEN.normal(size=(len(y), 16))
    return X.astype(np.float32), y


# The benchmark is defined on balanced classes, chance is 25 percent.
X, y = load_leaves()
X, y = RandomUnderSampler().fit_resample(X, y)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3)
mean, std = X_train.mean(0), X_train.std(0)
X_train, X_test = (X_train - mean) / std, (X_test - mean) / std

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
optim = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=1e-4)
loader = DataLoader(TensorDataset(torch.tensor(X_train), torch.tensor(y_train)), 64, shuffle=True)
X_test, y_test = torch.tensor(X_test), torch.tensor(y_test)
for epoch in range(12):
    model.train()
    losses = []
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        acc = (model(X_test).argmax(-1) == y_test).float().mean().item()
    print(f"[{epoch}] loss={np.mean(losses):.4f} test_acc={acc:.3f}")
