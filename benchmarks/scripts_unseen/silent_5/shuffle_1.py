# expect: sick
# fault: np.unique(axis=0) drops duplicate rows and also sorts the features, while the labels are merely cut to the new length, so rows and labels no longer match
# onset_step: 1
# says: (?i)(order|shuffl|align|labels of other rows|pairs?)
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)


def load_table(seed=0, rows=2400, cols=14):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(rows, cols)).round(2)
    w = rng.normal(size=(cols, 3))
    score = base @ w + 0.6 * np.sin(2 * base[:, :3])
    label = score.argmax(axis=1)
    again = rng.integers(0, rows, size=150)
    table = np.concatenate([base, base[again]])
    label = np.concatenate([label, label[again]])
    return table.astype(np.float32), label.astype(np.int64)


def clean(table, label):
    table = np.unique(table, axis=0)
    label = label[: len(table)]
    mean, std = table.mean(0), table.std(0) + 1e-6
    return (table - mean) / std, label


class Tabular(nn.Module):
    def __init__(self, cols, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(cols, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(128, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
        )
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    table, label = clean(*load_table())
    x, y = torch.from_numpy(table), torch.from_numpy(label)
    print("rows", len(x), "classes", y.bincount().tolist())
    cut = int(0.85 * len(x))
    mix = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[mix], y[mix]
    loader = DataLoader(TensorDataset(x[:cut], y[:cut]), batch_size=64, shuffle=True)
    model = Tabular(x.size(1), 3)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(8):
        model.train()
        total = 0.0
        for xb, yb in loader:
            opt.zero_grad()
            loss = loss_fn(model(xb), yb)
            loss.backward()
            opt.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            acc = (model(x[cut:]).argmax(1) == y[cut:]).float().mean().item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} held-out {acc:.3f}")


main()
