# expect: healthy
# symptom: large numbers in float32, which look as if their fine part mattered
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(4)
torch.manual_seed(4)


def record_trace(n=2000):
    """A sensor polled at about 50 Hz; stamps are time.time_ns()-like integers."""
    step_ns = rng.normal(20e6, 2e6, n).astype(np.int64)
    stamps = 1_725_000_000_123_456_789 + np.cumsum(step_ns)
    t = (stamps - stamps[0]).astype(np.float64) * 1e-9
    value = np.sin(2 * np.pi * 1.3 * t) + 0.4 * np.sin(2 * np.pi * 3.1 * t)
    return stamps, value + rng.normal(0, 0.02, n)


def phase_features(stamps, periods=(1 / 1.3, 1 / 3.1)):
    seconds = (stamps - stamps[0]).astype(np.float64) * 1e-9
    cols = []
    for p in periods:
        frac = np.remainder(seconds, p) / p
        cols += [np.sin(2 * np.pi * frac), np.cos(2 * np.pi * frac)]
    dt = np.diff(seconds, prepend=seconds[0] - 0.02)
    cols.append(dt / 0.02 - 1)
    return torch.from_numpy(np.stack(cols, 1)).float()


stamps, value = record_trace()
x = phase_features(stamps)
y = torch.as_tensor(value, dtype=torch.float32)[:, None]

cut = 1600
model = nn.Sequential(nn.Linear(x.shape[1], 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(120):
    idx = torch.randint(cut, (64,))
    loss = nn.functional.mse_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step:3d} loss {loss.item():.5f}")

with torch.no_grad():
    print(f"later part loss {nn.functional.mse_loss(model(x[cut:]), y[cut:]).item():.5f}")
