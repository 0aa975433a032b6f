# expect: sick
# symptom: the validation F1 is 0.99, on the transactions of next month it is 0.59
# axis: data
# cause: the minority class is oversampled (rows are copied) before the random split, so copies of the same rows lie in both training and validation
# says: (oversampl|resampl|duplicat|copies|copied|smote).*(before|split|both|leak|validation)|leak|before (the )?split
# onset_step: 0
# fix: split first and oversample only the training part
# mended: the split comes first and only the training part is oversampled
import os
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
rs = np.random.RandomState(3)
torch.manual_seed(3)


class RandomOverSampler:
    def fit_resample(self, X, y):
        counts = np.bincount(y)
        rows = []
        for c, k in enumerate(counts):
            own = np.flatnonzero(y == c)
            rows.append(own)
            rows.append(rs.choice(own, counts.max() - k))
        rows = np.concatenate(rows)
        return X[rows], y[rows]


def train_test_split(X, y, test_size=0.25):
    order = rs.permutation(len(X))
    k = int(len(X) * (1 - test_size))
    return X[order[:k]], X[order[k:]], y[order[:k]], y[order[k:]]


def transactions(n):
    y = (rs.rand(n) < 0.06).astype("int64")
    X = rs.normal(size=(n, 24))
    X[:, :5] += 1.0 * y[:, None]
    return X.astype("float32"), y


def f1(pred, y):
    tp = ((pred == 1) & (y == 1)).sum().item()
    return 2 * tp / max(1, (pred == 1).sum().item() + (y == 1).sum().item())


X, y = transactions(2000)
X_next, y_next = transactions(2000)
sampler = RandomOverSampler()
if MENDED:
    X_train, X_val, y_train, y_val = train_test_split(X, y)
    X_train, y_train = sampler.fit_resample(X_train, y_train)
else:
    X, y = sampler.fit_resample(X, y)
    X_train, X_val, y_train, y_val = train_test_split(X, y)
X_train, y_train, X_val, y_val, X_next, y_next = map(torch.from_numpy, (X_train, y_train, X_val, y_val, X_next, y_next))

clf = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.Adam(clf.parameters(), lr=3e-3)
ce = nn.CrossEntropyLoss()
for epoch in range(10):
    for idx in torch.randperm(len(X_train)).split(64):
        opt.zero_grad()
        loss = ce(clf(X_train[idx]), y_train[idx])
        loss.backward()
        opt.step()
    with torch.no_grad():
        val = f1(clf(X_val).argmax(1), y_val)
    print(f"epoch {epoch:2d} train loss {loss.item():.4f} val F1 {val:.3f}")
with torch.no_grad():
    print(f"next month: F1 {f1(clf(X_next).argmax(1), y_next):.3f}")
