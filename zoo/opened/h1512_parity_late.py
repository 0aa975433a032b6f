# expect: healthy
# symptom: the loss stays at ln 2 and the accuracy at chance for half of the run, then it falls within a few dozen steps
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)


class SparseParity(IterableDataset):
    """Random +-1 vectors; the label is the parity of a few hidden positions. Endless fresh samples."""

    def __init__(self, n_bits, k, chunk, seed):
        self.n_bits, self.chunk = n_bits, chunk
        self.g = torch.Generator().manual_seed(seed)
        self.support = torch.randperm(n_bits, generator=torch.Generator().manual_seed(1234))[:k]

    def batch(self, n):
        x = torch.randint(0, 2, (n, self.n_bits), generator=self.g).float() * 2 - 1
        y = (x[:, self.support].prod(1) < 0).float()
        return x, y

    def __iter__(self):
        while True:
            yield self.batch(self.chunk)


class MLP(nn.Module):
    def __init__(self, n_bits, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_bits, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = MLP(args.bits, args.hidden)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd)
        self.criterion = nn.BCEWithLogitsLoss()
        self.loader = DataLoader(SparseParity(args.bits, args.k, args.batch, args.seed + 1), batch_size=None)
        self.test = SparseParity(args.bits, args.k, args.batch, args.seed + 2).batch(2000)

    @torch.no_grad()
    def test_accuracy(self):
        x, y = self.test
        return ((self.model(x) > 0).float() == y).float().mean().item()

    def fit(self):
        for step, (x, y) in enumerate(self.loader):
            if step >= self.args.steps:
                break
            loss = self.criterion(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 10 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            if (step + 1) % 100 == 0:
                print(f"  test acc {self.test_accuracy():.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--bits", type=int, default=30)
    p.add_argument("--k", type=int, default=3)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=800)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--wd", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    Trainer(args).fit()
