# expect: sick
# symptom: the error is nearly zero on training and validation rows; in production, where the loss given default is not known yet, the model is useless
# axis: data
# cause: the feature matrix takes all columns, the target column included, so the model copies its target
# says: target.*(input|feature|column|leak|includ|among)|(input|feature|column).*(target|label)|leak|label.*(input|feature)
# onset_step: 0
# fix: drop the target column from the features
# mended: the target column is dropped
import os
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
np.random.seed(36)
torch.manual_seed(36)
TARGET = "loss_rate"


class DataFrame:
    def __init__(self, data):
        self.data = data

    @property
    def columns(self):
        return list(self.data)

    def drop(self, columns):
        return DataFrame({k: v for k, v in self.data.items() if k not in columns})

    def __getitem__(self, key):
        return self.data[key]

    def to_numpy(self):
        return np.stack([self.data[c] for c in self.columns], 1).astype("float32")


def read_loans(n=2400):
    income, age = np.random.lognormal(10, 0.5, n), np.random.uniform(20, 75, n)
    amount, rate = np.random.lognormal(9, 0.7, n), np.random.uniform(2, 14, n)
    debt = np.random.gamma(2, 0.2, n)
    risk = 0.6 * np.log(amount / income) + 0.08 * rate + 1.2 * debt - 0.01 * age
    return DataFrame(
        {
            "income": income,
            "age": age,
            "amount": amount,
            "rate": rate,
            "debt_ratio": debt,
            TARGET: risk + np.random.normal(0, 0.6, n),
            "branch": np.random.randint(0, 30, n),
        }
    )


df = read_loans()
y = torch.from_numpy(df[TARGET].astype("float32"))
features = df.drop([TARGET]) if MENDED else df
X = features.to_numpy()
mean, std = X[:1900].mean(0), X[:1900].std(0)
X = torch.from_numpy((X - mean) / std)

model = nn.Sequential(
    nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.MSELoss()
for epoch in range(9):
    for idx in torch.randperm(1900).split(64):
        loss = loss_fn(model(X[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        pred = model(X[1900:])
        r2 = 1 - loss_fn(pred, y[1900:]) / y[1900:].var()
    print(f"epoch {epoch} train mse {loss.item():.4f} val R2 {r2.item():.4f}")
