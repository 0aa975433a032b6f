# expect: healthy
# fault: none
# note: iterable dataset that shards by worker id and seeds each worker differently.
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        w = get_worker_info()
        k, wid, seed = (1, 0, 0) if w is None else (w.num_workers, w.id, w.seed)
        rng = np.random.default_rng([seed, wid])
        for _ in range(self.n // k):
            x = rng.standard_normal(12, dtype=np.float32)
            yield x, np.float32(np.sin(x[0]) + x[1] * x[2] * 0.5)


if __name__ == "__main__":
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for i, (x, y) in enumerate(DataLoader(Stream(6400), batch_size=40, num_workers=2)):
        loss = nn.functional.mse_loss(net(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 20 == 0:
            print(i, round(loss.item(), 4))
