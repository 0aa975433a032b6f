# expect: sick
# symptom: training goes well for hundreds of steps, then the loss shoots up by orders of magnitude at one batch and the forecasts stay poor afterwards
# axis: data
# cause: missing sensor readings are stored in the CSV as the sentinel -9999 and are fed to the model and the loss as if they were real values
# says: -?\s?9{3,4}|sentinel|placeholder|missing.{0,20}(value|reading|data|marker|code|record|sensor)|(no.?data|fill|dummy).{0,10}(value|code|marker)|outlier|(extreme|corrupt|bad|bogus|invalid|faulty|absurd|huge|impossible)\s.{0,30}(value|reading|row|sample|record|input|target|data|batch|feature)|sensor.{0,30}(fault|failure|dropout|outage|error)
# onset_step: 339
# fix: turn -9999 into missing on reading and fill it (forward fill)
# mended: with MENDED=1 the reader replaces readings of -9999 by the station's previous value
import csv
import math
import os
import random
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)

STATIONS, HOURS, CHUNK = 24, 24 * 500, 24


def write_csvs(folder, seed=12):
    rng = random.Random(seed)
    for s in range(STATIONS):
        base, swing, drift = rng.uniform(5, 18), rng.uniform(4, 9), 0.0
        outage = rng.randrange(300 * 24, 420 * 24) if s % 8 == 3 else None
        with open(os.path.join(folder, f"station_{s:02d}.csv"), "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["hour", "temp_c", "rel_humidity"])
            for h in range(HOURS):
                drift = 0.97 * drift + rng.gauss(0, 0.4)
                season = 8 * math.sin(2 * math.pi * h / (24 * 365))
                temp = base + season + drift + swing * math.sin(2 * math.pi * (h - 9) / 24)
                hum = 70 - 2.0 * (temp - base) + rng.gauss(0, 2)
                if outage is not None and outage <= h < outage + 6:
                    temp = -9999
                w.writerow([h, round(temp, 2), round(min(max(hum, 5), 100), 1)])


def read_station(path):
    rows, prev = [], 0.0
    with open(path) as f:
        for r in csv.DictReader(f):
            temp = float(r["temp_c"])
            if temp == -9999 and os.environ.get("MENDED") == "1":
                temp = prev
            prev = temp
            hour = int(r["hour"]) % 24
            rows.append(
                [
                    temp / 20.0,
                    float(r["rel_humidity"]) / 100.0,
                    math.sin(2 * math.pi * hour / 24),
                    math.cos(2 * math.pi * hour / 24),
                ]
            )
    return torch.tensor(rows)


class Forecaster(nn.Module):
    """Predicts the temperature three hours ahead at every hour."""

    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(4, hidden, batch_first=True)
        self.skip = nn.Linear(4, 1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        h, state = self.gru(x, state)
        return (self.head(h) + self.skip(x)).squeeze(-1), state.detach()


def main():
    torch.manual_seed(12)
    with tempfile.TemporaryDirectory() as folder:
        write_csvs(folder)
        files = sorted(os.listdir(folder))
        data = torch.stack([read_station(os.path.join(folder, f)) for f in files])
    print("loaded", tuple(data.shape))

    model = Forecaster()
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    state, recent = None, []
    last = HOURS // CHUNK - 1
    for day in range(last):
        a = day * CHUNK
        x = data[:, a : a + CHUNK]
        y = data[:, a + 3 : a + CHUNK + 3, 0]
        pred, state = model(x, state)
        loss = nn.functional.mse_loss(pred, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        recent.append((pred.detach() - y).abs().mean().item() * 20)
        if (day + 1) % 25 == 0:
            print(f"day {day + 1:3d} loss {loss.item():.5f}  mean abs error {recent[-1]:.2f} C")
    print(f"mean abs error of the last 30 days: {sum(recent[-30:]) / 30:.2f} C")


if __name__ == "__main__":
    main()
