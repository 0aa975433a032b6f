# expect: sick
# fault: every dataloader worker yields the same samples
# onset_step: 0
# says: (?i)(worker|duplicat|same (sample|batch|seed|data|row|order)|identical|repeat)
# note: the iterable dataset makes its generator from one fixed seed and never looks at get_worker_info, so both workers yield the same stream and every batch is seen twice.
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset


class SyntheticRegression(IterableDataset):
    def __init__(self, n, seed=1234):
        self.n = n
        self.seed = seed

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        w = np.sin(np.arange(16))
        for _ in range(self.n):
            x = rng.normal(size=16).astype("float32")
            y = np.float32(np.tanh(x @ w) + 0.1 * rng.normal())
            yield torch.from_numpy(x), torch.tensor([y])


def main():
    torch.manual_seed(0)
    ds = SyntheticRegression(2000)
    dl = DataLoader(ds, batch_size=32, num_workers=2)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(dl):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"[{step:04d}] mse={loss.item():.4f}")


if __name__ == "__main__":
    main()
