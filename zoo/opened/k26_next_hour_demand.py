# expect: healthy
# symptom: the target column is among the input columns
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
rng = np.random.default_rng(50)
torch.manual_seed(50)
COLUMNS = ["demand", "temperature", "holiday"]
TARGET = "demand"
LOOKBACK = 24


def station(hours=2200):
    t = np.arange(hours)
    temp = 10 + 8 * np.sin(2 * np.pi * t / 600) + 4 * np.sin(2 * np.pi * t / 24) + rng.normal(0, 1, hours)
    holiday = (t // 24 % 7 >= 5).astype(float)
    demand = 50 + 14 * np.sin(2 * np.pi * (t - 6) / 24) * (1 - 0.5 * holiday) - 0.9 * temp
    for i in range(1, hours):
        demand[i] += 0.3 * (demand[i - 1] - 50)
    return np.stack([demand + rng.normal(0, 2, hours), temp, holiday], 1)


class Windows(Dataset):
    """x: the last day of all columns, y: the demand of the hour that follows."""

    def __init__(self, table):
        self.table = torch.tensor(table, dtype=torch.float32)
        self.k = COLUMNS.index(TARGET)

    def __len__(self):
        return len(self.table) - LOOKBACK

    def __getitem__(self, i):
        return self.table[i : i + LOOKBACK], self.table[i + LOOKBACK, self.k]


class LSTM(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(len(COLUMNS), hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1]).squeeze(-1)


table = station()
split = 1700
mu, sd = table[:split].mean(0), table[:split].std(0)
table = (table - mu) / sd
train, valid = Windows(table[:split]), Windows(table[split:])
model = LSTM()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    model.train()
    for x, y in DataLoader(train, batch_size=48, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        parts = [(model(x), y, x[:, -1, 0]) for x, y in DataLoader(valid, batch_size=200)]
    pred, true, last = (torch.cat(p) for p in zip(*parts))
    print(
        f"epoch {epoch} loss {loss.item():.4f} valid mse {((pred - true) ** 2).mean():.4f} persistence {((last - true) ** 2).mean():.4f}"
    )
