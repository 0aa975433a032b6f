# expect: healthy
# symptom: resembles bad data: a third of the input values are NaN, some batches hold windows that are NaN throughout one channel
# axis: data
# cause: the NaN entries mean 'not measured'; they are replaced by the channel's zero mean before the network, a mask is fed along, and missing targets are excluded from the loss with a safe denominator
# says: none
# onset_step: none
# fix: none
# mended: none
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

T, C = 32, 4


def simulate(n, seed):
    """Four vital signs driven by one hidden rhythm; sensors are often off."""
    rng = np.random.default_rng(seed)
    t = np.arange(T + 1)
    w = rng.uniform(0.3, 0.8, (n, 1))
    ph = rng.uniform(0, 2 * math.pi, (n, 1))
    z = np.sin(w * t + ph)
    x = np.stack([z, -z, np.cos(w * t + ph), 0.5 * z + 0.5], -1)
    x = x + 0.05 * rng.standard_normal(x.shape)
    x[rng.random(x.shape) < 0.3] = np.nan
    off = rng.random((n, C)) < 0.08
    x.transpose(0, 2, 1)[off] = np.nan
    return x.astype(np.float32)


class VitalsDataset(Dataset):
    def __init__(self, path):
        self.x = np.load(path)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i])


class MaskedGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(2 * C, hidden, batch_first=True)
        self.head = nn.Linear(hidden, C)

    def forward(self, x):
        seen = ~torch.isnan(x)
        x = torch.nan_to_num(x, nan=0.0)
        h, _ = self.gru(torch.cat([x, seen.float()], -1))
        return self.head(h)


def masked_mse(pred, target):
    seen = ~torch.isnan(target)
    diff = torch.where(seen, pred - torch.nan_to_num(target, nan=0.0), torch.zeros_like(pred))
    return diff.pow(2).sum() / seen.sum().clamp(min=1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    out = [masked_mse(model(b[:, :-1]), b[:, 1:]).item() for b in loader]
    model.train()
    return float(np.mean(out))


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as d:
        paths = {}
        for name, n, seed in [("train", 3200, 0), ("val", 480, 1)]:
            paths[name] = os.path.join(d, name + ".npy")
            np.save(paths[name], simulate(n, seed))
        train = DataLoader(VitalsDataset(paths["train"]), batch_size=32, shuffle=True, num_workers=2)
        val = DataLoader(VitalsDataset(paths["val"]), batch_size=96)
        first = next(iter(val))
        print(f"missing entries {torch.isnan(first).float().mean():.2f}")

        model = MaskedGRU()
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
        step = 0
        for epoch in range(5):
            for batch in train:
                loss = masked_mse(model(batch[:, :-1]), batch[:, 1:])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                step += 1
                if step % 50 == 0:
                    print(f"step {step} loss {loss.item():.4f}")
            print(f"epoch {epoch} val {evaluate(model, val):.4f}")


if __name__ == "__main__":
    main()
