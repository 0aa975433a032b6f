# expect: healthy
# symptom: the validation rows are trained on in the last fit
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(33)
rng = np.random.default_rng(33)


def concrete(n):
    x = rng.normal(size=(n, 8)).astype("float32")
    y = x[:, 0] + 0.7 * x[:, 1] * x[:, 2] - np.maximum(x[:, 3], 0) + 0.5 * rng.normal(size=n)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y.astype("float32")))


def new_model():
    torch.manual_seed(33)
    return nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1), nn.Flatten(0))


def one_epoch(model, opt, loader):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def mse(model, ds):
    x, y = ds[:] if isinstance(ds, TensorDataset) else map(torch.stack, zip(*ds))
    return nn.functional.mse_loss(model(x), y).item()


everything, test = concrete(900), concrete(400)
train, val = random_split(everything, [700, 200])

# 1. how many epochs?
model = new_model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
curve = []
for epoch in range(10):
    last = one_epoch(model, opt, DataLoader(train, 64, shuffle=True))
    curve.append(mse(model, val))
    print(f"search epoch {epoch} train {last:.4f} val {curve[-1]:.4f}")
n_epochs = int(np.argmin(curve)) + 1
print(f"-> {n_epochs} epochs, test so far {mse(model, test):.4f}")

# 2. the delivered model: all labelled rows, that many epochs, from scratch
model = new_model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(n_epochs):
    last = one_epoch(model, opt, DataLoader(ConcatDataset([train, val]), 64, shuffle=True))
    print(f"final epoch {epoch} train {last:.4f}")
print(f"test {mse(model, test):.4f}")
