# expect: sick
# symptom: the forecaster's loss stops early at a level hardly better than using the last value; more capacity does not help
# axis: model
# cause: the transformer encoder layer is built without batch_first=True but is fed (batch, time, features), so attention runs across the batch instead of over time
# says: batch_first|atten\w*.*(across|over|along|between|mix\w*).{0,40}(batch|samples|series|examples)|(batch|time|sequence).{0,40}(dim\w*|ax[ie]s).{0,40}(swap|confus|mix|wrong|transpos)|(wrong|mixed|swapped).{0,30}(dim\w*|ax[ie]s).{0,60}(atten|encoder|transformer)
# onset_step: 0
# fix: pass batch_first=True to nn.TransformerEncoderLayer
# mended: yes
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"


class FeederLoad(Dataset):
    """Windows cut from many simulated feeders, each with its own period and shape."""

    def __init__(self, n_feeders, length, context, horizon, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(length)
        period = rng.uniform(8, 20, size=(n_feeders, 1))
        phase = rng.uniform(0, 2 * np.pi, size=(n_feeders, 1))
        amp = rng.uniform(0.3, 0.6, size=(n_feeders, 1))
        base = np.sin(2 * np.pi * t / period + phase)
        second = amp * np.sin(4 * np.pi * t / period + 2.1 * phase)
        self.values = (base + second + 0.05 * rng.standard_normal((n_feeders, length))).astype(np.float32)
        self.context, self.horizon = context, horizon
        self.per_feeder = length - context - horizon + 1

    def __len__(self):
        return len(self.values) * self.per_feeder

    def __getitem__(self, i):
        row, start = divmod(i, self.per_feeder)
        mid = start + self.context
        past = self.values[row, start:mid]
        future = self.values[row, mid : mid + self.horizon]
        return torch.from_numpy(past).unsqueeze(-1), torch.from_numpy(future)


class Forecaster(nn.Module):
    def __init__(self, context, horizon, d_model=48, nhead=4, layers=2, dropout=0.0):
        super().__init__()
        self.embed = nn.Linear(1, d_model)
        self.pos = nn.Parameter(torch.randn(1, context, d_model) * 0.1)
        kwargs = dict(
            d_model=d_model,
            nhead=nhead,
            dim_feedforward=2 * d_model,
            dropout=dropout,
            activation="gelu",
            norm_first=True,
        )
        if MENDED:
            kwargs["batch_first"] = True
        layer = nn.TransformerEncoderLayer(**kwargs)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, horizon)

    def forward(self, past):
        h = self.embed(past) + self.pos[:, : past.shape[1]]
        h = self.encoder(h)
        return self.head(self.norm(h[:, -1]))


class Trainer:
    def __init__(self, model, train_loader, val_loader, args):
        self.model, self.train_loader, self.val_loader = model, train_loader, val_loader
        self.args = args
        self.opt = torch.optim.Adam(model.parameters(), lr=args.lr)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, max_lr=args.lr, total_steps=args.steps, pct_start=0.15
        )
        self.loss_fn = nn.MSELoss()

    def batches(self):
        while True:
            yield from self.train_loader

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = naive = n = 0.0
        for past, future in self.val_loader:
            total += (self.model(past) - future).abs().sum().item()
            naive += (past[:, -1] - future).abs().sum().item()
            n += future.numel()
        self.model.train()
        return total / n, naive / n

    def fit(self):
        for step, (past, future) in enumerate(self.batches(), 1):
            loss = self.loss_fn(self.model(past), future)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if step % 25 == 0:
                print(f"step {step} train mse {loss.item():.4f}")
            if step % 100 == 0:
                mae, naive = self.validate()
                print(f"step {step} val mae {mae:.4f} (last value {naive:.4f})")
            if step >= self.args.steps:
                break


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--context", type=int, default=32)
    p.add_argument("--horizon", type=int, default=6)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = FeederLoad(120, 160, args.context, args.horizon, seed=1)
    val = FeederLoad(12, 100, args.context, args.horizon, seed=2)
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    vloader = DataLoader(val, 128)
    model = Forecaster(args.context, args.horizon)
    Trainer(model, loader, vloader, args).fit()


if __name__ == "__main__":
    main()
