# expect: healthy
# symptom: a scaler is fitted on test recordings too
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
rng = np.random.default_rng(8)
torch.manual_seed(8)
CHANNELS, LENGTH = 3, 64


class StandardScaler:
    def fit_transform(self, x):
        self.mean_ = x.mean(axis=(0, 2), keepdims=True)
        self.scale_ = x.std(axis=(0, 2), keepdims=True) + 1e-8
        return (x - self.mean_) / self.scale_


class Recording:
    """One night of one person. Amplifier gain and electrode offset differ by night,
    so each night is z-scored by itself; no labels are needed for that."""

    def __init__(self, n_epochs=60):
        gain = np.exp(rng.normal(0, 1.0, (1, CHANNELS, 1)))
        offset = rng.normal(0, 30, (1, CHANNELS, 1))
        self.stage = rng.integers(0, 3, n_epochs)
        t = np.arange(LENGTH) / LENGTH
        f = np.array([2, 6, 11])[self.stage][:, None, None]
        phase = rng.uniform(0, 6.28, (n_epochs, CHANNELS, 1))
        clean = np.sin(6.283 * f * t + phase)
        self.signal = gain * (20 * clean + 14 * rng.normal(size=clean.shape)) + offset

    def tensors(self):
        z = StandardScaler().fit_transform(self.signal)
        return torch.tensor(z, dtype=torch.float32), torch.tensor(self.stage)


def stack(recordings):
    pairs = [r.tensors() for r in recordings]
    return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])


nights = [Recording() for _ in range(24)]
train_x, train_y = stack(nights[:18])
test_x, test_y = stack(nights[18:])

net = nn.Sequential(
    nn.Conv1d(CHANNELS, 16, 9, padding=4),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(16, 24, 7, padding=3),
    nn.ReLU(),
    nn.AdaptiveMaxPool1d(1),
    nn.Flatten(),
    nn.Linear(24, 3),
)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for epoch in range(8):
    net.train()
    for idx in torch.randperm(len(train_x)).split(48):
        loss = nn.functional.cross_entropy(net(train_x[idx]), train_y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        acc = (net(test_x).argmax(1) == test_y).float().mean()
    print(f"epoch {epoch} loss {loss.item():.3f} test acc {acc:.3f}")
