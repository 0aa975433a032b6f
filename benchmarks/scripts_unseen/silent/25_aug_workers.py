# EXPECT: sick
# FAULT: all data workers share one numpy seed, batches come in identical pairs
# ONSET: 2
# SAYS: worker|seed|duplicate|identical|same batch|repeat
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)


class SimulatedSignals(Dataset):
    """Signals are simulated on the fly, so every item is new."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, _):
        kind = np.random.randint(4)
        t = np.linspace(0, 1, 64)
        f = np.random.uniform(2, 8)
        ph = np.random.uniform(0, 2 * np.pi)
        s = [
            np.sin(2 * np.pi * f * t + ph),
            np.sign(np.sin(2 * np.pi * f * t + ph)),
            (f * t + ph) % 1.0,
            np.sin(2 * np.pi * f * t * t * 2 + ph),
        ][kind]
        s = s + 0.2 * np.random.randn(64)
        return torch.from_numpy(s.astype(np.float32))[None], kind


def seed_worker(worker_id):
    np.random.seed(1234)


if __name__ == "__main__":
    torch.manual_seed(1234)
    np.random.seed(1234)
    dl = DataLoader(SimulatedSignals(16 * 80), batch_size=16, num_workers=2, worker_init_fn=seed_worker)
    net = nn.Sequential(
        nn.Conv1d(1, 16, 7, stride=2),
        nn.ReLU(),
        nn.Conv1d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for i, (x, y) in enumerate(dl):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 10 == 0:
            print(f"batch {i} loss {loss.item():.4f}")
