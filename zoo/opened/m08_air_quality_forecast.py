# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# says: sort|order|reshap|mix
# onset_step: 0
# fix: sort by the key of the rows first
# mended: yes
import os
import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"

N_STATIONS, N_HOURS, WINDOW = 12, 240, 24
rng = np.random.default_rng(3)
torch.manual_seed(3)


def download_measurements():
    """Flat log of (station, hour, pm25) in arrival order."""
    station, hour = np.meshgrid(np.arange(N_STATIONS), np.arange(N_HOURS), indexing="ij")
    base = rng.uniform(10, 40, N_STATIONS)[station]
    daily = 8 * np.sin(2 * np.pi * (hour + 3 * station) / 24)
    pm = base + daily + rng.normal(0, 1.0, station.shape)
    arrival = rng.permutation(station.size)
    return station.ravel()[arrival], hour.ravel()[arrival], pm.ravel()[arrival]


def to_table(station, hour, pm):
    order = np.lexsort((hour, station) if MENDED else (station, hour))
    return pm[order].reshape(N_STATIONS, N_HOURS)


def windows(table):
    xs, ys = [], []
    for series in table:
        for t in range(len(series) - WINDOW):
            xs.append(series[t : t + WINDOW])
            ys.append(series[t + WINDOW])
    return (torch.tensor(np.array(xs), dtype=torch.float32), torch.tensor(np.array(ys), dtype=torch.float32))


table = to_table(*download_measurements())
cut = int(0.8 * N_HOURS)
mu, sd = table[:, :cut].mean(), table[:, :cut].std()
table = (table - mu) / sd
x_tr, y_tr = windows(table[:, :cut])
x_va, y_va = windows(table[:, cut - WINDOW :])

model = nn.Sequential(nn.Linear(WINDOW, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.MSELoss()

for step in range(60):
    pick = torch.randint(len(x_tr), (128,))
    pred = model(x_tr[pick]).squeeze(1)
    loss = loss_fn(pred, y_tr[pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (step + 1) % 20 == 0:
        with torch.no_grad():
            val = loss_fn(model(x_va).squeeze(1), y_va)
        print(f"step {step + 1:3d} train {loss.item():.4f} val {val.item():.4f}")
