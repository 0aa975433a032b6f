# expect: sick
# symptom: the forecaster trains without an error, but its loss stalls at about twice the error that this model should reach
# axis: model
# cause: nn.LSTM is built without batch_first=True but gets (batch, time, features), so it runs along the batch dimension and mixes unrelated windows
# says: batch.?first|(batch|time|seq\w*)[\s\S]{0,30}(dim\w*|ax[ei]s)[\s\S]{0,60}(swap|confus|exchang|transpos|interchang|mix|wrong|treated|taken|as)|(runs?|recurr\w+|recurs\w*|scans?|unroll\w*|iterat\w+|steps?)[\s\S]{0,30}(over|along|across|through)[\s\S]{0,15}batch|(leak|mix|depend|information|interact)\w*[\s\S]{0,40}(across|between|other)[\s\S]{0,25}(samples|batch|rows|windows|examples)|(samples|rows|windows|examples)[\s\S]{0,30}(in|of) (the|a) batch[\s\S]{0,30}(mix|influence|affect|leak|depend)
# onset_step: 1
# fix: nn.LSTM(..., batch_first=True)
# mended: with MENDED=1 the LSTM is built with batch_first=True
import csv
import math
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
WINDOW, HORIZON = 24, 3


def write_csv(path, hours=6000):
    """Hourly load of a small town: daily rhythm with a drifting phase, a slow swell and sensor noise."""
    rnd = random.Random(4)
    phase, swell = 0.0, 0.0
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["hour", "load", "temperature"])
        for h in range(hours):
            phase += rnd.gauss(0, 0.02)
            swell = 0.995 * swell + rnd.gauss(0, 0.03)
            day = math.sin(2 * math.pi * h / 12 + phase)
            temp = 12 + 6 * math.sin(2 * math.pi * h / 12 + phase + 0.8) + rnd.gauss(0, 3)
            w.writerow([h, round(40 + 10 * (day + swell) + rnd.gauss(0, 4), 3), round(temp, 2)])


class Windows(Dataset):
    def __init__(self, series, start, stop):
        self.series, self.start, self.stop = series, start, stop

    def __len__(self):
        return self.stop - self.start - WINDOW - HORIZON

    def __getitem__(self, i):
        i += self.start
        x = self.series[i : i + WINDOW]
        return x, self.series[i + WINDOW : i + WINDOW + HORIZON, 0]


class LoadForecaster(nn.Module):
    def __init__(self, n_features, hidden=48, layers=1):
        super().__init__()
        kw = {"batch_first": True} if os.environ.get("MENDED") == "1" else {}
        self.lstm = nn.LSTM(n_features, hidden, num_layers=layers, **kw)
        self.fc = nn.Linear(hidden, HORIZON)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


def evaluate(model, loader):
    model.eval()
    se, naive, n = 0.0, 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            se += (model(x) - y).pow(2).sum().item()
            naive += (x[:, -1:, 0] - y).pow(2).sum().item()
            n += y.numel()
    model.train()
    return se / n, naive / n


def main():
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "load.csv")
        write_csv(path)
        with open(path) as f:
            rows = [[float(r["load"]), float(r["temperature"])] for r in csv.DictReader(f)]
    series = torch.tensor(rows)
    split = 5000
    series = (series - series[:split].mean(0)) / series[:split].std(0)

    train_loader = DataLoader(Windows(series, 0, split), batch_size=64, shuffle=True)
    test_loader = DataLoader(Windows(series, split, len(series)), batch_size=64)

    model = LoadForecaster(n_features=2)
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    step = 0
    for epoch in range(6):
        for x, y in train_loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        mse, naive = evaluate(model, test_loader)
        print(f"epoch {epoch} test mse {mse:.4f} (last value: {naive:.4f})")


if __name__ == "__main__":
    main()
