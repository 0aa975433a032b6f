# expect: sick
# symptom: training loss drops to almost 0, far below the noise of the series, while the live forecast is poor
# axis: data
# cause: the input window contains the value to be predicted (target leak by a window one too long)
# says: (?i)(leak|sees the (target|answer|label)|contains the (target|answer)|target (is )?(among|in) the input|label among)
# onset_step: 1
# fix: end the input window before the target: series[i:i+W] instead of series[i+1:i+W+1]
# mended: MENDED=1 python s02_load_forecast_lstm.py
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
W = 24
SKIP = 0 if os.environ.get("MENDED") == "1" else 1


def make_series(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n, dtype=torch.float32)
    return torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168) + 0.5 * torch.randn(n, generator=g)


class LoadWindows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return len(self.series) - W - 1

    def __getitem__(self, i):
        history = self.series[i + SKIP : i + W + SKIP]
        return history.unsqueeze(-1), self.series[i + W]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(-1)


def live(model, series):
    with torch.no_grad():
        x = series.unfold(0, W, 1)[:-1].unsqueeze(-1)
        return (model(x) - series[W:]).square().mean().item()


series, fresh = make_series(9000, 1), make_series(800, 2)
model, step = Forecaster(), 0
optim = torch.optim.Adam(model.parameters(), lr=4e-3)
for epoch in range(2):
    for x, y in DataLoader(LoadWindows(series), batch_size=48, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        step += 1
        if step % 25 == 0:
            print(f"step={step} mse={loss.item():.4f}")
    print(f"epoch {epoch} live mse {live(model, fresh):.4f} (noise alone 0.25)")
