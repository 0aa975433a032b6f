# expect: sick
# cause: The mean squared error compares predictions of shape [N, 1] with targets of shape [N], which broadcasts to N x N and teaches only the mean.
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(8)
torch.manual_seed(8)
n = 6000
df = pd.DataFrame(
    {
        "hour": rng.integers(0, 24, n),
        "weekday": rng.integers(0, 7, n),
        "temp": rng.normal(14, 8, n),
        "wind": rng.gamma(2, 6, n),
        "rain": (rng.random(n) < 0.2).astype(int),
    }
)
rush = np.exp(-((df.hour - 8) ** 2) / 4) + np.exp(-((df.hour - 17.5) ** 2) / 6)
leisure = np.exp(-((df.hour - 14) ** 2) / 18)
work = df.weekday < 5
df["count"] = 180 * np.where(work, rush, leisure) + 4 * df.temp - 60 * df.rain - df.wind + rng.normal(0, 15, n) + 40


class Hire(Dataset):
    def __init__(self, frame, stats):
        angle = 2 * np.pi * frame.hour / 24
        cols = [
            np.sin(angle),
            np.cos(angle),
            np.sin(2 * angle),
            np.cos(2 * angle),
            (frame.weekday >= 5) * 1.0,
            (frame.temp - 14) / 8,
            (frame.wind - 12) / 8,
            frame.rain,
        ]
        self.x = torch.tensor(np.stack(cols, 1), dtype=torch.float32)
        self.y = torch.tensor(((frame["count"] - stats[0]) / stats[1]).to_numpy(), dtype=torch.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


train_df, valid_df = df.iloc[:5000], df.iloc[5000:]
stats = (train_df["count"].mean(), train_df["count"].std())
train, valid = Hire(train_df, stats), Hire(valid_df, stats)
loader = DataLoader(train, batch_size=128, shuffle=True)

model = nn.Sequential(nn.Linear(8, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
loss_fn = nn.MSELoss()

for epoch in range(10):
    tot = 0
    for x, y in loader:
        pred = model(x)
        loss = loss_fn(pred, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item() * len(y)
    with torch.no_grad():
        err = (model(valid.x).squeeze(1) - valid.y).abs().mean().item() * stats[1]
    print(f"epoch {epoch:2d} mse {tot / len(train):.4f} validation mean error {err:.1f} bikes")
