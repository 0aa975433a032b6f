# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: precision
# cause: a large number is put into a narrow format before a difference or a phase is taken, so its fine part is rounded away
# says: (float32|float16|bfloat16|half|precision|round|mantissa|24.?bit|coarse|format).{0,160}
# onset_step: 0
# fix: take the offset off in float64 first
# mended: the same with the fix
import os
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"

rng = np.random.default_rng(21)
torch.manual_seed(21)

# survey stakes on a slope, UTM easting / northing / height in metres
N = 320
east = 512_300.0 + rng.uniform(0, 80, N)
north = 5_281_450.0 + rng.uniform(0, 80, N)
height = 1840.0 + 0.3 * (north - north.min())
first = np.stack([east, north, height], axis=1)

u = (first[:, 0] - 512_340.0) / 40
v = (first[:, 1] - 5_281_490.0) / 40
creep = np.stack([0.04 * np.sin(2 * u), 0.10 * np.cos(1.5 * v), -0.03 * u * v], axis=1)
second = first + creep + rng.normal(0, 0.002, first.shape)

as_tensor = torch.from_numpy if MENDED else torch.FloatTensor
p0, p1 = as_tensor(first), as_tensor(second)
origin = p0.mean(dim=0)

site = ((p0 - origin) / 40).float()
moved_cm = ((p1 - p0) * 100).float()
print("displacement std (cm):", [round(s, 2) for s in moved_cm.std(dim=0).tolist()])

loader = DataLoader(TensorDataset(site, moved_cm), batch_size=32, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(3, 48),
    torch.nn.Tanh(),
    torch.nn.Linear(48, 3),
)
opt = torch.optim.Adam(model.parameters(), lr=2e-2)
loss_fn = torch.nn.MSELoss()

for epoch in range(14):
    total = 0.0
    for xb, yb in loader:
        loss = loss_fn(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(xb)
    print(f"epoch {epoch:2d} loss {total / N:.4f}")
