# expect: sick
# symptom: the held-out error is nearly as low as the training error, on new machines it is ten times higher (1.8 against 0.13)
# axis: data
# cause: overlapping windows of the same recordings are split at random, so each held-out window has near copies in the training set
# says: overlap|(neighbo|adjacent|same (recording|machine|series)).*(train|split)|window.*(split|leak|random)|random.*split.*(window|time|series)|leak
# onset_step: 0
# fix: split by recording (or by time with a gap) before the windows are cut
# mended: whole machines are held out
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
rng = np.random.default_rng(27)
torch.manual_seed(27)
WINDOW, STRIDE, LENGTH = 64, 4, 600


def machine():
    """Vibration of one bearing; the wear is a slow random curve."""
    wear = np.cumsum(rng.normal(0, 1, LENGTH))
    wear = np.convolve(wear, np.ones(60) / 60, mode="same")
    wear = (wear - wear.mean()) / wear.std()
    own = np.cumsum(rng.normal(0, 0.05, (3, LENGTH)), axis=1)
    vib = own + 0.1 * rng.normal(size=(3, LENGTH))
    vib[0] += 0.7 * wear
    return vib.astype("float32"), wear.astype("float32")


def windows(signal, wear, stride=STRIDE):
    starts = range(0, LENGTH - WINDOW + 1, stride)
    x = np.stack([signal[:, s : s + WINDOW] for s in starts])
    y = np.array([wear[s + WINDOW - 1] for s in starts])
    return x, y


machines = [windows(*machine()) for _ in range(10)]
if MENDED:
    train_m, val_m = machines[:8], machines[8:]
    x_tr, y_tr = (np.concatenate(v) for v in zip(*train_m))
    x_va, y_va = (np.concatenate(v) for v in zip(*val_m))
else:
    x, y = (np.concatenate(v) for v in zip(*machines))
    order = rng.permutation(len(x))
    cut = int(0.8 * len(x))
    x_tr, y_tr, x_va, y_va = x[order[:cut]], y[order[:cut]], x[order[cut:]], y[order[cut:]]
x_tr, y_tr, x_va, y_va = map(torch.from_numpy, (x_tr, y_tr, x_va, y_va))
new_x, new_y = (np.concatenate(v) for v in zip(*[windows(*machine()) for _ in range(3)]))
new_x, new_y = torch.from_numpy(new_x), torch.from_numpy(new_y)

model = nn.Sequential(
    nn.AvgPool1d(4),
    nn.Flatten(),
    nn.Linear(3 * WINDOW // 4, 128),
    nn.ReLU(),
    nn.Linear(128, 128),
    nn.ReLU(),
    nn.Linear(128, 1),
    nn.Flatten(0),
)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(16):
    for idx in torch.randperm(len(x_tr)).split(64):
        loss = nn.functional.mse_loss(model(x_tr[idx]), y_tr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 3 == 0:
        with torch.no_grad():
            print(
                f"epoch {epoch} train {loss.item():.4f} held-out {nn.functional.mse_loss(model(x_va), y_va).item():.4f}"
            )
with torch.no_grad():
    print(
        f"new machines {nn.functional.mse_loss(model(new_x), new_y).item():.4f} (mean as the guess {new_y.var().item():.4f})"
    )
