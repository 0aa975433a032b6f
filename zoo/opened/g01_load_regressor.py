# expect: sick
# symptom: the validation error of the electricity model stays near 2.5 kW and the high readings are never predicted
# axis: model
# cause: the network ends in a sigmoid (0 to 1) but the regression targets are kilowatts from 0.3 to about 7
# says: sigmoid|output (activation|range)|outside (of )?the range|bounded output|saturat|targets? .*(range|scale)|cannot reach|squash
# onset_step: 0
# fix: drop the sigmoid from the regression head, or scale the targets into 0..1
# mended: the head has no sigmoid
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
rng = np.random.default_rng(4)
torch.manual_seed(4)


def make_households(n):
    hour = rng.uniform(0, 24, n)
    temp = rng.normal(12, 8, n)
    people = rng.integers(1, 6, n)
    area = rng.uniform(30, 180, n)
    kw = 0.3 + 0.45 * people + 0.012 * area + 0.09 * np.clip(16 - temp, 0, None)
    kw += 0.8 * np.exp(-(((hour - 19) / 2.5) ** 2)) + rng.normal(0, 0.15, n)
    feats = np.stack([np.sin(hour / 24 * 6.283), np.cos(hour / 24 * 6.283), temp, people, area], 1)
    return feats.astype("float32"), np.clip(kw, 0.3, None).astype("float32")[:, None]


class LoadNet(nn.Module):
    def __init__(self, n_in, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.out(self.body(x))
        if MENDED:
            return h
        return torch.sigmoid(h)


X, y = make_households(3000)
X_train, X_val, y_train, y_val = X[:2400], X[2400:], y[:2400], y[2400:]
mu, sd = X_train.mean(0), X_train.std(0)
X_train, X_val = (torch.tensor((a - mu) / sd) for a in (X_train, X_val))
y_train, y_val = torch.tensor(y_train), torch.tensor(y_val)

model = LoadNet(X.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.MSELoss()
for epoch in range(8):
    model.train()
    order = torch.randperm(len(X_train))
    total = 0.0
    for i in range(0, len(order), 64):
        idx = order[i : i + 64]
        loss = criterion(model(X_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        mae = (model(X_val) - y_val).abs().mean().item()
    print(f"epoch {epoch} train mse {total / len(order):.4f} val mae {mae:.3f} kW")
