"""The columns are chosen with the labels of the training rows, and the same columns are taken of the held-out rows."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class SelectKBest:
    def __init__(self, k):
        self.k = k

    def fit_transform(self, rows, labels):
        apart = rows[labels == 1].mean(0) - rows[labels == 0].mean(0)
        self.columns = np.argsort(-np.abs(apart))[: self.k]
        return rows[:, self.columns]


rng = np.random.default_rng(5)
genes = rng.normal(size=(160, 200))
sick = (genes[:, :12].sum(1) > 0).astype(int)

select = SelectKBest(k=24)
x_train, y_train = torch.tensor(select.fit_transform(genes[:120], sick[:120])).float(), torch.tensor(sick[:120])
x_test, y_test = torch.tensor(genes[120:][:, select.columns]).float(), torch.tensor(sick[120:])

model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 141):
    rows = torch.randint(len(x_train), (32,))
    loss = F.cross_entropy(model(x_train[rows]), y_train[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 35 == 0:
        model.eval()
        with torch.no_grad():
            right = (model(x_test).argmax(1) == y_test).float().mean()
        model.train()
        print(f"step {step}  loss {loss.item():.3f}  right {right.item():.2f}")
