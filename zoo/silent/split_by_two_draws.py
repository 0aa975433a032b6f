"""Inputs and targets are split by a call each, and each call draws for itself."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


def train_test_split(*columns, test_size=0.2, random_state=None):
    order = (np.random if random_state is None else np.random.RandomState(random_state)).permutation(len(columns[0]))
    cut = int(len(order) * (1 - test_size))
    return [part for column in columns for part in (column[order[:cut]], column[order[cut:]])]


X = np.random.normal(size=(800, 8))
y = (X[:, 0] * X[:, 1] > 0).astype(int)

X_train, X_test = train_test_split(X, test_size=0.25)
y_train, y_test = train_test_split(y, test_size=0.25)  # <- bites
rows = torch.utils.data.TensorDataset(torch.tensor(X_train).float(), torch.tensor(y_train))
held_out = torch.tensor(X_test).float(), torch.tensor(y_test)

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(1, 9):
    for inputs, labels in torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(held_out[0]).argmax(1) == held_out[1]).float().mean()
    print(f"epoch {epoch}  loss {loss.item():.3f}  right {right.item():.2f}")
