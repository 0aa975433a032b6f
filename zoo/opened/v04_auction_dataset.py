# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: the state of a recurrent layer is carried from one batch to the next although the batches are unrelated
# says: (hidden|state|memory|carr).{0,160}
# onset_step: 0
# fix: begin each batch with a new state
# mended: the same with the fix
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

MENDED = os.environ.get("MENDED") == "1"


class AuctionDataset(Dataset):
    """Bids of one auction in order; the target is the highest bid so far."""

    def __init__(self, n, length=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        scale = 0.2 + 0.8 * torch.rand(n, 1, generator=g)
        self.bids = torch.rand(n, length, generator=g) * scale
        self.best = self.bids.cummax(dim=1).values

    def __len__(self):
        return len(self.bids)

    def __getitem__(self, i):
        return self.bids[i].unsqueeze(-1), self.best[i].unsqueeze(-1)


class MinimalGatedCell(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.gate = nn.Linear(n_in + n_hidden, n_hidden)
        self.cand = nn.Linear(n_in + n_hidden, n_hidden)

    def forward(self, x, h):
        f = torch.sigmoid(self.gate(torch.cat([x, h], dim=-1)))
        c = torch.tanh(self.cand(torch.cat([x, f * h], dim=-1)))
        return (1 - f) * h + f * c


class Trainer:
    def __init__(self, n_hidden=24, batch_size=32, lr=6e-3):
        self.cell = MinimalGatedCell(1, n_hidden)
        self.out = nn.Linear(n_hidden, 1)
        self.n_hidden = n_hidden
        self.batch_size = batch_size
        self.opt = torch.optim.AdamW([*self.cell.parameters(), *self.out.parameters()], lr=lr)
        train = AuctionDataset(1024, seed=1)
        self.loader = DataLoader(train, batch_size, sampler=RandomSampler(train), drop_last=True)
        self.test = AuctionDataset(400, seed=2)
        self.h = None

    def reset(self):
        self.h = torch.zeros(self.batch_size, self.n_hidden)

    def unroll(self, x, h):
        outs = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outs.append(self.out(h))
        return torch.stack(outs, 1), h

    def training_step(self, batch):
        x, y = batch
        if MENDED:
            self.reset()
        pred, h = self.unroll(x, self.h)
        self.h = h.detach()
        return nn.functional.mse_loss(pred, y)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.reset()
            total = 0.0
            for batch in self.loader:
                loss = self.training_step(batch)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                total += loss.item()
            print(f"[{epoch}] train={total / len(self.loader):.5f} test={self.evaluate():.5f}")

    @torch.no_grad()
    def evaluate(self):
        x, y = self.test.bids.unsqueeze(-1), self.test.best.unsqueeze(-1)
        pred, _ = self.unroll(x, torch.zeros(len(x), self.n_hidden))
        return nn.functional.mse_loss(pred, y).item()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    Trainer().fit(epochs=8)
